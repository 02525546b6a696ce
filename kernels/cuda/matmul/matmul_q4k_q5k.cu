// Instances of the matmul kernels: Q4_K, Q5_K.
#include "kernels/cuda/matmul/matmul_start.cuh"

namespace slipstream::cuda {

void start_matmul_q4_k(const JointParams& params, void* stream) {
    start_weights<ScaledMinWeights<false>>(params, stream);
}
void start_matmul_q4_k(const GroupParams& params, void* stream) {
    start_weights<ScaledMinWeights<false>>(params, stream);
}
void start_matmul_q5_k(const JointParams& params, void* stream) {
    start_weights<ScaledMinWeights<true>>(params, stream);
}
void start_matmul_q5_k(const GroupParams& params, void* stream) {
    start_weights<ScaledMinWeights<true>>(params, stream);
}

}  // namespace slipstream::cuda
