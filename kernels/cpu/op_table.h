// One op table a CPU form.
#pragma once

#include "kernels/cpu_device.h"
#include "kernels/op_table.h"

namespace slipstream::cpu {

[[nodiscard]] const OpTable& op_table(CpuForm form);

void move_rows(ExecRef exec, const MoveRowsArgs& args);

}  // namespace slipstream::cpu
