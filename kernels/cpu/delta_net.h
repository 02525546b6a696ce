// The ops of kernels/delta_net.h on the CPU, for the op tables. The variants of an op give the same bits.
#pragma once

#include "kernels/cpu_device.h"
#include "kernels/delta_net.h"

namespace slipstream::cpu {

void delta_net_scalar(ExecRef exec, const DeltaNetArgs& args);
void delta_net_avx2(ExecRef exec, const DeltaNetArgs& args);
void delta_net_avx512(ExecRef exec, const DeltaNetArgs& args);

void gather_columns(ExecRef exec, const GatherColumnsArgs& args);

/// Returns the scratch of a delta_net() over at most `n_steps` steps.
[[nodiscard]] CpuScratch delta_net_scratch(const DeltaNetShape& shape, std::int64_t n_steps);

}  // namespace slipstream::cpu
