// The op tables of the CPU, one per kernel variant.
#pragma once

#include "kernels/cpu_device.h"
#include "kernels/op_table.h"

namespace slipstream::cpu {

/// Returns the ops of a kernel variant, valid for the whole run. The machine must have its instructions.
[[nodiscard]] const OpTable& op_table(CpuForm form);

/// The op move_rows (kernels/move_rows.h), one version for all kernel variants.
void move_rows(ExecRef exec, const MoveRowsArgs& args);

}  // namespace slipstream::cpu
