// Sums of exp(logit - largest logit) over rows of logits, which turn a logit into a probability. A thread block sums a
// range of a row, then a warp sums the ranges of a row, always in the same order.
#include "gpu.cuh"
#include "kernels/cuda/sampling_launch.h"

namespace slipstream::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// Returns the sum of `sum` over the lanes of the warp, in every lane, always in the same order. Whole warps only.
__device__ __forceinline__ float warp_sum(float sum) {
    for (int mask = 16; mask > 0; mask /= 2) sum += gpu::shfl_xor(sum, mask);
    return sum;
}

// Sums exp((logit - greatest logit of the row) / temperature) over ranges of kArgmaxPiece logits; -inf and NaN add
// nothing. Grid: (ranges, rows); `sums`: [rows, ranges]. Shared memory: kWarps floats.
__global__ void __launch_bounds__(kThreads) sum_pieces(const LogitSumLaunch a, float* sums) {
    const float* logits = a.rows.logits + blockIdx.y * a.rows.stride;
    const float greatest = a.greatest[blockIdx.y * a.greatest_stride];
    const int first = static_cast<int>(blockIdx.x) * kArgmaxPiece;
    const int end = gpu::min(first + kArgmaxPiece, a.rows.vocab);
    float sum = 0.0F;
    for (int id = first + static_cast<int>(threadIdx.x); id < end; id += kThreads) {
        const float logit = logits[id];
        if (!(logit > -INFINITY)) continue;  // also skips NaN
        sum += logit == greatest ? 1.0F : gpu::exp_approx((logit - greatest) * a.inverse_temperature);
    }
    sum = warp_sum(sum);
    const auto of_warps = gpu::dynamic_shared<float>();
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
    gpu::sync_threads();
    if (threadIdx.x != 0) return;
    sum = 0.0F;
    for (int warp = 0; warp < kWarps; ++warp) sum += of_warps[warp];
    sums[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

// Adds the sums of the ranges of each row. Grid: rows, one warp each.
__global__ void __launch_bounds__(32) sum_rows(const float* pieces, const int n_pieces, float* sums) {
    float sum = 0.0F;
    for (int i = static_cast<int>(threadIdx.x); i < n_pieces; i += 32) sum += pieces[blockIdx.x * n_pieces + i];
    sum = warp_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

}  // namespace

void launch_logit_sum(const LogitSumLaunch& a, void* stream) {
    if (a.rows.n == 0) return;
    const auto n_rows = static_cast<unsigned>(a.rows.n);
    const int n_pieces = sampling_pieces(a.rows.vocab, kArgmaxPiece);
    auto* pieces = reinterpret_cast<float*>(a.scratch);
    gpu::launch(sum_pieces, dim3(static_cast<unsigned>(n_pieces), n_rows), dim3(kThreads), kWarps * sizeof(float),
                stream, a, pieces);
    gpu::launch(sum_rows, dim3(n_rows), dim3(32), size_t{0}, stream, static_cast<const float*>(pieces), n_pieces,
                a.sums);
}

}  // namespace slipstream::cuda
