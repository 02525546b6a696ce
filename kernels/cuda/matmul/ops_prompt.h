// Matmul over a prompt by cuBLASLt: what ops_matmul.cpp calls and ops_prompt.cpp implements.
#pragma once

#include "kernels/cuda/host/cuda_device.h"
#include "kernels/matmul.h"

namespace slipstream::cuda {

/// Whether cuBLASLt computes this product: x is prompt (args.prompt is set), the device has the library, and the type
/// and K are supported.
[[nodiscard]] bool prompt_takes(const CudaDevice& device, const MatmulArgs& args);

/// Computes a product for which prompt_takes() is true. The arguments are those of matmul(), already checked
/// (kernels/matmul.h). Throws CudaError.
void prompt_matmul(ExecRef exec, const MatmulArgs& args);

}  // namespace slipstream::cuda
