#include "tools/options/trace_output.h"

namespace slipstream::tools {

OptionSpec trace_option() {
    return {"trace", "--trace", "F",
            "Record copies, waits, ops, drafting and verification as Chrome trace events, for ui.perfetto.dev; at most "
            "256 MiB",
            OptionRole::OutputFile};
}

std::unique_ptr<TraceFile> trace_output(const Settings& settings) {
    const auto path = settings.path("trace");
    return path ? std::make_unique<TraceFile>(*path) : nullptr;
}

}  // namespace slipstream::tools
