// The machine that a bench runs on, and what it can do at most, measured in the same run.
#pragma once

#include <string>

#include "tools/machine_peaks.h"

namespace slipstream::tools {

struct BenchMachine {
    std::string cpu;  // its name for itself, or "unknown"
    int n_threads = 1;
    MachinePeaks peaks;  // with that many threads
};

/// About a second; takes 512 MiB for as long, less where memory is short.
[[nodiscard]] BenchMachine measure_machine(int n_threads);

}  // namespace slipstream::tools
