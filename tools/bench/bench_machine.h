// The machine that a bench runs on, and what it can do at most.
#pragma once

#include <string>

#include "kernels/device.h"
#include "tools/machine/machine_peaks.h"

namespace slipstream::tools {

struct BenchMachine {
    DeviceKind kind = DeviceKind::Cpu;
    std::string name;  // of the CPU or the card, or "unknown"
    int n_threads = 1;
    MachinePeaks peaks;  // of a CPU with that many threads; of a card the memory's rate alone, 0: unknown
};

/// What computes on `device`. A CPU is measured: about a second, and 512 MiB for as long, less where memory is short. A
/// card is asked; bench_card measures it.
[[nodiscard]] BenchMachine measure_machine(Device& device, int n_threads);

}  // namespace slipstream::tools
