// Matmul over prompt by cuBLASLt, between ops_matmul.cpp, which asks, and ops_prompt.cpp.
#pragma once

#include "kernels/cuda/host/cuda_device.h"
#include "kernels/matmul.h"

namespace slipstream::cuda {

/// Whether cuBLASLt computes this product: x is prompt, the device has the library, and type and K are served.
[[nodiscard]] bool prompt_takes(const CudaDevice& device, const MatmulArgs& args);

/// Such a product, arguments checked (kernels/matmul.h). Throws CudaError.
void prompt_matmul(ExecRef exec, const MatmulArgs& args);

}  // namespace slipstream::cuda
