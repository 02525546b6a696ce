// Instances of the matmul kernels: the mixtures of models whose V is of six bits where Q and K are of four or five.
#include "kernels/cuda/matmul/matmul_start.cuh"

namespace slipstream::cuda {

void start_matmul_q4k_q6k(const JointParams& params, void* stream) {
    start_mixed<ScaledMinWeights<false>, SixBitWeights>(params, stream);
}
void start_matmul_q5k_q6k(const JointParams& params, void* stream) {
    start_mixed<ScaledMinWeights<true>, SixBitWeights>(params, stream);
}

}  // namespace slipstream::cuda
