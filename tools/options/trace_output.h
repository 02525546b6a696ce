// --trace: where a run is recorded, span by span.
#pragma once

#include <memory>

#include "offload/trace_file.h"
#include "tools/options/command.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

/// --trace.
[[nodiscard]] OptionSpec trace_option();
/// The trace that is asked for, null if none is. Made before the model is opened, so that a place that cannot be
/// written is found before the work. Throws IoError.
[[nodiscard]] std::unique_ptr<TraceFile> trace_output(const Settings& settings);

}  // namespace slipstream::tools
