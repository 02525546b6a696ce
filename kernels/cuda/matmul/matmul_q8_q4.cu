// Instances of the matmul kernels: Q8_0, Q4_0, Q4_1.
#include "kernels/cuda/matmul/matmul_start.cuh"

namespace slipstream::cuda {

void start_matmul_q8_0(const JointParams& params, void* stream) {
    start_weights<ByteWeights>(params, stream);
}
void start_matmul_q8_0(const GroupParams& params, void* stream) {
    start_weights<ByteWeights>(params, stream);
}
void start_matmul_q4_0(const JointParams& params, void* stream) {
    start_weights<NibbleWeights<8, false, false>>(params, stream);
}
void start_matmul_q4_0(const GroupParams& params, void* stream) {
    start_weights<NibbleWeights<8, false, false>>(params, stream);
}
void start_matmul_q4_1(const JointParams& params, void* stream) {
    start_weights<NibbleWeights<0, true, false>>(params, stream);
}
void start_matmul_q4_1(const GroupParams& params, void* stream) {
    start_weights<NibbleWeights<0, true, false>>(params, stream);
}

}  // namespace slipstream::cuda
