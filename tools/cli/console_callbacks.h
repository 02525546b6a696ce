// Connects an engine to the console of a command: notes, details (-v) and progress bars; a signal cancels its work.
#pragma once

#include "tools/engine/engine.h"
#include "tools/options/command.h"

namespace slipstream::tools {

/// Returns callbacks that write to the console of `context`; its settings and console must outlive them.
[[nodiscard]] EngineCallbacks console_callbacks(CommandContext& context);

}  // namespace slipstream::tools
