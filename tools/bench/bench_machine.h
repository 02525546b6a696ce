// The machine that a benchmark runs on, and its peak rates.
#pragma once

#include <string>

#include "kernels/device.h"
#include "tools/machine/machine_peaks.h"

namespace slipstream::tools {

struct BenchMachine {
    DeviceKind kind = DeviceKind::Cpu;
    std::string name;  // name of the CPU or the GPU; "unknown" if it has none
    int n_threads = 1;
    MachinePeaks peaks;  // CPU: measured with n_threads; GPU: only its memory bandwidth, 0 if unknown
};

/// Returns the machine that computes on `device`. A CPU is measured: this takes about a second and 512 MiB, or less if
/// memory is short. For a GPU the driver's properties are used; `slipstream-lab card` measures it.
[[nodiscard]] BenchMachine measure_machine(Device& device, int n_threads);

}  // namespace slipstream::tools
