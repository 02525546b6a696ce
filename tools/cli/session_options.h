// Options of sessions: --session, --session-limit, and which other options an existing session must agree with.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "tools/engine/engine.h"
#include "tools/options/command.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

/// Declares --session and --session-limit.
[[nodiscard]] std::vector<OptionSpec> session_option_specs();
/// Declares --session-limit alone, for a chat, whose session is another file.
[[nodiscard]] OptionSpec session_limit_option();
/// Returns --session-limit, or its default. Throws UsageError if it is malformed, or if the command line gives it
/// without --session.
[[nodiscard]] std::size_t session_limit(const Settings& settings);

/// Returns the session that --session names; nothing if the option is not given. Options of the text on the command
/// line are demanded of an existing session (SessionRequest). Throws UsageError if an option is malformed or has no
/// effect, or if --verify rejection is given with --session.
[[nodiscard]] std::optional<SessionRequest> session_request(const Settings& settings);

/// Sets `devices` in `settings` to the session's devices if the session is continued, its split decides its text, the
/// command line names no devices, and the session's devices exist on this machine.
void take_session_devices(const TextSession& session, Settings& settings);

/// Opens the model of the session, at the path that -m names on the command line, or else where it was when the session
/// began. Throws RequestError if it is a different model or would be computed in a different way on `devices`, and what
/// choose_model() and OpenedModel throw.
[[nodiscard]] OpenedModel open_session_model(const TextSession& session, const std::vector<DeviceChoice>& devices,
                                             const CommandContext& context, const EngineCallbacks& callbacks);

}  // namespace slipstream::tools
