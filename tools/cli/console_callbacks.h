// What an engine tells, on the console of a command: notes, what -v shows, progress bars; a signal stops it.
#pragma once

#include "tools/engine/engine.h"
#include "tools/options/command.h"

namespace slipstream::tools {

/// Settings and console of `context` outlive the result.
[[nodiscard]] EngineCallbacks console_callbacks(CommandContext& context);

}  // namespace slipstream::tools
