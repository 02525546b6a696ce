// Instances of the matmul kernels: BF16 and F16 weights. K of a model is whole units of 64; what else there is takes
// one small instance, a tile of tokens at a time.
#include "kernels/cuda/matmul_kernels.cuh"

namespace slipstream::cuda {

namespace {

template <bool half>
void start_floats(const MatmulParams& params, void* stream) {
    if (params.k % (4 * kStepK) == 0) return start_weights<FloatWeights<half, false>>(params, stream);
    const int64_t n_groups = (params.m + kGroupRows - 1) / kGroupRows;
    const dim3 grid(static_cast<unsigned>(params.n_tiles), static_cast<unsigned>(n_groups));
    const auto n_parts = static_cast<unsigned>(params.n_parts);
    gpu::launch(matmul_split<FloatWeights<half, true>, 1, 1>, grid, dim3(n_parts * kWarp), size_t{n_parts} * 512,
                stream, params);
}

}  // namespace

void start_matmul_bf16(const MatmulParams& params, void* stream) {
    start_floats<false>(params, stream);
}
void start_matmul_f16(const MatmulParams& params, void* stream) {
    start_floats<true>(params, stream);
}

}  // namespace slipstream::cuda
