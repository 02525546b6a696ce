// Instances of the matmul kernels for BF16 and F16 weights. K of a model is whole units of 64; any other K uses one
// small instance, a tile of tokens at a time.
#include "kernels/cuda/matmul/matmul_start.cuh"

namespace slipstream::cuda {

namespace {

template <bool half>
void start_floats(const JointParams& params, void* stream) {
    if (params.all.k % (4 * kStepK) == 0) return start_weights<FloatWeights<half, false>>(params, stream);
    start_split<FloatWeights<half, true>, 1, 1, false>(params, stream);
}

}  // namespace

void start_matmul_bf16(const JointParams& params, void* stream) {
    start_floats<false>(params, stream);
}
void start_matmul_bf16(const GroupParams& params, void* stream) {
    start_weights<FloatWeights<false, false>>(params, stream);
}
void start_matmul_f16(const JointParams& params, void* stream) {
    start_floats<true>(params, stream);
}

}  // namespace slipstream::cuda
