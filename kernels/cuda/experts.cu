// The weighted sum of the results of experts. A thread has one element of a token's sum, and adds the token's rows in
// ascending order by fused multiply-adds: one chain, whatever rows of other tokens there are. A warp finds the rows of
// its token 32 at a time.
#include "gpu.cuh"
#include "kernels/cuda/experts_launch.h"

namespace slipstream::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
// Most thread blocks along the tokens; with more tokens, thread blocks take several in turn.
constexpr int64_t kMostTokenBlocks = 4096;

// sums[tokens[r]] = fma(weights[r], rows[r], sums[tokens[r]]) for each row r (CombineExpertsLaunch). Grid: (ranges of
// kThreads elements, tokens).
__global__ void __launch_bounds__(kThreads) combine_rows(const CombineExpertsLaunch a) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    const bool there = at < a.d;
    for (int64_t token = blockIdx.y; token < a.n_tokens; token += gridDim.y) {
        float* to = a.sums + token * a.sum_stride + at;
        float sum = there && !a.from_zero ? *to : 0.0F;
        for (int64_t first = 0; first < a.n_rows; first += kWarp) {
            const int64_t mine = first + lane;
            const uint32_t found = gpu::ballot(mine < a.n_rows && a.tokens[mine] == token);
            if (found == 0 || !there) continue;
#pragma unroll 1  // few rows are found; unrolled, the loop spills registers
            for (int i = 0; i < kWarp; ++i)
                if ((found >> i & 1U) != 0)
                    sum = gpu::fma(a.weights[first + i], a.rows[(first + i) * a.row_stride + at], sum);
        }
        if (there) *to = sum;
    }
}

}  // namespace

void launch_combine_experts(const CombineExpertsLaunch& launch, void* stream) {
    if (launch.n_tokens == 0 || launch.d == 0) return;
    const dim3 grid(static_cast<unsigned>((launch.d + kThreads - 1) / kThreads),
                    static_cast<unsigned>(launch.n_tokens < kMostTokenBlocks ? launch.n_tokens : kMostTokenBlocks));
    gpu::launch(combine_rows, grid, dim3(kThreads), 0, stream, launch);
}

}  // namespace slipstream::cuda
