// Parameters of the kernels that choose tokens on the device, so that logits need not cross the link: argmax, the k
// best, and the argmax of E2 with the very noise of kernels/base/noise.h. Logits that are NaN or -inf are never chosen;
// of equals the lower id is. What these give is, bit for bit, what runtime/loop/sampling gives from the same logits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace slipstream::cuda {

/// Rows of logits.
struct LogitRows {
    const float* logits = nullptr;  // [n, vocab], rows `stride` floats apart
    std::int64_t stride = 0;
    std::int32_t n = 0;
    std::int32_t vocab = 0;
};

struct ArgmaxLaunch {
    LogitRows rows;
    std::int32_t* ids = nullptr;   // [n]; -1 where no logit is above -inf
    float* values = nullptr;       // [n]: the greatest logit, or -inf
    std::byte* scratch = nullptr;  // argmax_scratch_bytes(n, vocab), 16-byte aligned
};
void launch_argmax(const ArgmaxLaunch& launch, void* stream);

/// argmax of float((logit - greatest) / temperature) + gumbel_noise(seed, position, id), quotient in double.
struct GumbelLaunch {
    LogitRows rows;
    const std::int64_t* positions = nullptr;  // [n], absolute
    std::uint64_t seed = 0;
    double temperature = 1.0;      // > 0
    std::int32_t* ids = nullptr;   // [n], as of argmax
    float* scores = nullptr;       // [n]: what the argmax is over
    std::byte* scratch = nullptr;  // gumbel_scratch_bytes(n, vocab), 16-byte aligned
};
void launch_gumbel(const GumbelLaunch& launch, void* stream);

inline constexpr std::int32_t kMaxTopK = 64;

/// The k best logits of each row, descending, of equals the lower id first. Where a row has fewer: id -1, -inf.
struct TopKLaunch {
    LogitRows rows;
    std::int32_t k = 0;            // 1 to kMaxTopK
    std::int32_t* ids = nullptr;   // [n, k]
    float* values = nullptr;       // [n, k]
    std::byte* scratch = nullptr;  // top_k_scratch_bytes(n, vocab, k), 16-byte aligned
};
void launch_top_k(const TopKLaunch& launch, void* stream);

/// Sum of exp((logit - greatest) / temperature) over each row (kernels/sampling.h: logit_sum).
struct LogitSumLaunch {
    LogitRows rows;
    const float* greatest = nullptr;  // [n], greatest_stride floats apart
    std::int64_t greatest_stride = 1;
    float inverse_temperature = 1.0F;
    float* sums = nullptr;         // [n]
    std::byte* scratch = nullptr;  // logit_sum_scratch_bytes(n, vocab), 16-byte aligned
};
void launch_logit_sum(const LogitSumLaunch& launch, void* stream);

// A row is cut into pieces that blocks take side by side.
inline constexpr std::int32_t kArgmaxPiece = 8192;  // logits
inline constexpr std::int32_t kTopKPiece = 4096;

[[nodiscard]] constexpr std::int32_t sampling_pieces(std::int32_t n, std::int32_t each) {
    return (n + each - 1) / each;
}
/// A best value and its id of each piece.
[[nodiscard]] constexpr std::size_t argmax_scratch_bytes(std::int32_t n, std::int32_t vocab) {
    return 8 * static_cast<std::size_t>(n) * static_cast<std::size_t>(sampling_pieces(vocab, kArgmaxPiece));
}
/// The same, behind each row's greatest logit and its id.
[[nodiscard]] constexpr std::size_t gumbel_scratch_bytes(std::int32_t n, std::int32_t vocab) {
    return argmax_scratch_bytes(n, vocab) + 8 * static_cast<std::size_t>(n);
}
/// A sum of each piece.
[[nodiscard]] constexpr std::size_t logit_sum_scratch_bytes(std::int32_t n, std::int32_t vocab) {
    return 4 * static_cast<std::size_t>(n) * static_cast<std::size_t>(sampling_pieces(vocab, kArgmaxPiece));
}
/// k values and ids of each piece, and of each piece of those.
[[nodiscard]] constexpr std::size_t top_k_scratch_bytes(std::int32_t n, std::int32_t vocab, std::int32_t k) {
    const auto first = static_cast<std::size_t>(k) * static_cast<std::size_t>(sampling_pieces(vocab, kTopKPiece));
    return 2 * 8 * static_cast<std::size_t>(n) * first;
}

}  // namespace slipstream::cuda
