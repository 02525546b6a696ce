// One op table a CPU form.
#pragma once

#include "kernels/cpu_device.h"
#include "kernels/op_table.h"

namespace slipstream::cpu {

[[nodiscard]] const OpTable& op_table(CpuForm form);

}  // namespace slipstream::cpu
