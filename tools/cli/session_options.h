// Options of sessions: --session, --session-limit, and which other options are demands on a session that is there.
#pragma once

#include <optional>
#include <vector>

#include "tools/engine/engine.h"
#include "tools/options/command.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

/// --session, --session-limit.
[[nodiscard]] std::vector<OptionSpec> session_option_specs();

/// The session that --session names; nothing without the option. What the command line says about the text is demanded
/// of it. Throws UsageError where options cannot act together.
[[nodiscard]] std::optional<SessionRequest> session_request(const Settings& settings);

/// Where the session goes on and the command line names no devices: its own, if their split decides its text and they
/// are here, as if they were named there.
void take_session_devices(const TextSession& session, Settings& settings);

/// The model that the session was begun with, where it was then, unless -m names where it is. Throws RequestError where
/// it is another one, or would be computed otherwise on `devices`, and what open_model() throws.
[[nodiscard]] OpenedModel open_session_model(const TextSession& session, const std::vector<DeviceChoice>& devices,
                                             const CommandContext& context, const EngineCallbacks& callbacks);

}  // namespace slipstream::tools
