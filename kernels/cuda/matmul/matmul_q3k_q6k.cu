// Instances of the matmul kernels: Q3_K, Q6_K.
#include "kernels/cuda/matmul/matmul_start.cuh"

namespace slipstream::cuda {

void start_matmul_q3_k(const JointParams& params, void* stream) {
    start_weights<ThreeBitWeights>(params, stream);
}
void start_matmul_q3_k(const GroupParams& params, void* stream) {
    start_weights<ThreeBitWeights>(params, stream);
}
void start_matmul_q6_k(const JointParams& params, void* stream) {
    start_weights<SixBitWeights>(params, stream);
}
void start_matmul_q6_k(const GroupParams& params, void* stream) {
    start_weights<SixBitWeights>(params, stream);
}

}  // namespace slipstream::cuda
