// How rows of logits are divided over launches of the kernels that choose tokens: a fixed number at a time, so that
// scratch depends on the vocabulary alone and the GPU is busy all the same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/sampling_launch.h"

namespace slipstream::cuda {

/// Most rows per launch. With a vocabulary of 128K they make 1024 thread blocks (argmax) or 2048 (the k best), several
/// for each multiprocessor of any GPU.
inline constexpr std::int64_t kSamplingRows = 64;

/// Returns the bytes of scratch that are enough for any op of sampling.h on `n_rows` rows.
[[nodiscard]] constexpr std::size_t sampling_scratch_bytes(std::int64_t n_rows, std::int64_t vocab) {
    const auto n = static_cast<std::int32_t>(std::min(n_rows, kSamplingRows));
    const auto cols = static_cast<std::int32_t>(vocab);
    return std::max({top_k_scratch_bytes(n, cols, kMaxTopK), gumbel_scratch_bytes(n, cols),
                     argmax_scratch_bytes(n, cols), logit_sum_scratch_bytes(n, cols)});
}

/// Returns the bytes that a call of an op of sampling.h stages: the positions of the rows of a launch.
[[nodiscard]] constexpr std::size_t sampling_staged_bytes(std::int64_t n_rows) {
    return std::min(n_rows, kSamplingRows) * sizeof(std::int64_t);
}

}  // namespace slipstream::cuda
