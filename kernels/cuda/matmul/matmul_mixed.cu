// Instances of the matmul kernels for mixed types: of models whose V has more bits than Q and K.
#include "kernels/cuda/matmul/matmul_start.cuh"

namespace slipstream::cuda {

void start_matmul_q3k_q4k(const JointParams& params, void* stream) {
    start_mixed<ThreeBitWeights, ScaledMinWeights<false>>(params, stream);
}
void start_matmul_q3k_q5k(const JointParams& params, void* stream) {
    start_mixed<ThreeBitWeights, ScaledMinWeights<true>>(params, stream);
}
void start_matmul_q4k_q6k(const JointParams& params, void* stream) {
    start_mixed<ScaledMinWeights<false>, SixBitWeights>(params, stream);
}
void start_matmul_q5k_q6k(const JointParams& params, void* stream) {
    start_mixed<ScaledMinWeights<true>, SixBitWeights>(params, stream);
}

}  // namespace slipstream::cuda
