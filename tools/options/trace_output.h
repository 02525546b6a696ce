// --trace: where a run is recorded, span by span.
#pragma once

#include <memory>

#include "offload/trace_file.h"
#include "tools/options/command.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

/// Declares --trace.
[[nodiscard]] OptionSpec trace_option();
/// Returns the trace that --trace asks for; null if it is not given. Call before the model is opened, so that a file
/// that cannot be written is reported before the work. Throws IoError.
[[nodiscard]] std::unique_ptr<TraceFile> trace_output(const Settings& settings);

}  // namespace slipstream::tools
