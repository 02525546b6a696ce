// Instances of the matmul kernels: BF16 and F16 weights.
#include "kernels/cuda/matmul_kernels.cuh"

namespace slipstream::cuda {

void start_matmul_bf16(const MatmulParams& params, void* stream) {
    start_weights<FloatWeights<false>>(params, stream);
}
void start_matmul_f16(const MatmulParams& params, void* stream) {
    start_weights<FloatWeights<true>>(params, stream);
}

}  // namespace slipstream::cuda
