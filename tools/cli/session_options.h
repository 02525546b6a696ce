// Options of sessions: --session, --session-limit, and which other options are demands on a session that is there.
#pragma once

#include <optional>
#include <vector>

#include "tools/engine/session.h"
#include "tools/options/command.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

/// --session, --session-limit.
[[nodiscard]] std::vector<OptionSpec> session_option_specs();

/// The session that --session names; nothing without the option. What the command line says about the text is demanded
/// of it. Throws UsageError where options cannot act together.
[[nodiscard]] std::optional<SessionRequest> session_request(const Settings& settings);

}  // namespace slipstream::tools
