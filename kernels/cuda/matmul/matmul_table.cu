// Instances of the matmul kernels: IQ4_NL, MXFP4.
#include "kernels/cuda/matmul/matmul_start.cuh"

namespace slipstream::cuda {

void start_matmul_iq4_nl(const JointParams& params, void* stream) {
    start_weights<TableWeights<DType::IQ4_NL>>(params, stream);
}
void start_matmul_iq4_nl(const GroupParams& params, void* stream) {
    start_weights<TableWeights<DType::IQ4_NL>>(params, stream);
}
void start_matmul_mxfp4(const JointParams& params, void* stream) {
    start_weights<TableWeights<DType::MXFP4>>(params, stream);
}
void start_matmul_mxfp4(const GroupParams& params, void* stream) {
    start_weights<TableWeights<DType::MXFP4>>(params, stream);
}

}  // namespace slipstream::cuda
