// Instances of the matmul kernels: Q5_0, Q5_1.
#include "kernels/cuda/matmul/matmul_start.cuh"

namespace slipstream::cuda {

void start_matmul_q5_0(const JointParams& params, void* stream) {
    start_weights<NibbleWeights<16, false, true>>(params, stream);
}
void start_matmul_q5_0(const GroupParams& params, void* stream) {
    start_weights<NibbleWeights<16, false, true>>(params, stream);
}
void start_matmul_q5_1(const JointParams& params, void* stream) {
    start_weights<NibbleWeights<0, true, true>>(params, stream);
}
void start_matmul_q5_1(const GroupParams& params, void* stream) {
    start_weights<NibbleWeights<0, true, true>>(params, stream);
}

}  // namespace slipstream::cuda
