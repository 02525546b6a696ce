// The op tables of the CPU, one per kernel variant.
#pragma once

#include "kernels/cpu_device.h"
#include "kernels/op_table.h"

namespace slipstream::cpu {

/// Returns the ops of a kernel variant, valid for the whole run. The machine must have its instructions.
[[nodiscard]] const OpTable& op_table(CpuForm form);

/// Copies rows between planes (the op of kernels/move_rows.h). All kernel variants use it.
void move_rows(ExecRef exec, const MoveRowsArgs& args);

}  // namespace slipstream::cpu
