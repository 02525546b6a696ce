// Parameters of the kernels that choose tokens on the device, so that logits need not cross the link: argmax, the k
// best, and the argmax of drafter-invariant sampling (E2), with the same noise (kernels/base/noise.h). Logits that are
// NaN or -infinity are never chosen; of equal logits the lower id is. The results have the bits that
// runtime/loop/sampling computes from the same logits. All pointers are to device memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace slipstream::cuda {

/// Rows of logits, in device memory.
struct LogitRows {
    const float* logits = nullptr;  // [n, vocab], rows `stride` floats apart
    std::int64_t stride = 0;
    std::int32_t n = 0;
    std::int32_t vocab = 0;
};

/// The greatest logit of each row, and its id.
struct ArgmaxLaunch {
    LogitRows rows;
    std::int32_t* ids = nullptr;   // [n]; -1 if no logit of the row is above -infinity
    float* values = nullptr;       // [n]: the greatest logit, or -infinity
    std::byte* scratch = nullptr;  // argmax_scratch_bytes(n, vocab) bytes, 16-byte aligned
};
/// Enqueues the kernels of `launch` on `stream`; nothing if there are no rows.
void launch_argmax(const ArgmaxLaunch& launch, void* stream);

/// The argmax of float((logit - greatest) / temperature) + gumbel_noise(seed, position, id) in each row, with the
/// quotient in double.
struct GumbelLaunch {
    LogitRows rows;
    const std::int64_t* positions = nullptr;  // [n], absolute position of the token that is drawn
    std::uint64_t seed = 0;
    double temperature = 1.0;      // > 0
    std::int32_t* ids = nullptr;   // [n]; -1 if no logit of the row is above -infinity
    float* scores = nullptr;       // [n]: the greatest sum of each row
    std::byte* scratch = nullptr;  // gumbel_scratch_bytes(n, vocab) bytes, 16-byte aligned
};
/// Enqueues the kernels of `launch` on `stream`; nothing if there are no rows.
void launch_gumbel(const GumbelLaunch& launch, void* stream);

/// Most logits of a row that launch_top_k() can return. Must be equal to kMostTopLogits (kernels/sampling.h).
inline constexpr std::int32_t kMaxTopK = 64;

/// The k best logits of each row, descending; of equal logits the lower id first. If a row has fewer: id -1, value
/// -infinity.
struct TopKLaunch {
    LogitRows rows;
    std::int32_t k = 0;            // 1 to kMaxTopK
    std::int32_t* ids = nullptr;   // [n, k]
    float* values = nullptr;       // [n, k]
    std::byte* scratch = nullptr;  // top_k_scratch_bytes(n, vocab, k) bytes, 16-byte aligned
};
/// Enqueues the kernels of `launch` on `stream`; nothing if there are no rows.
void launch_top_k(const TopKLaunch& launch, void* stream);

/// The sum of exp((logit - greatest) / temperature) over each row (kernels/sampling.h: logit_sum).
struct LogitSumLaunch {
    LogitRows rows;
    const float* greatest = nullptr;  // [n], greatest_stride floats apart: the greatest logit of each row
    std::int64_t greatest_stride = 1;
    float inverse_temperature = 1.0F;
    float* sums = nullptr;         // [n]
    std::byte* scratch = nullptr;  // logit_sum_scratch_bytes(n, vocab) bytes, 16-byte aligned
};
/// Enqueues the kernels of `launch` on `stream`; nothing if there are no rows.
void launch_logit_sum(const LogitSumLaunch& launch, void* stream);

/// Logits in a range of a row for argmax, with or without noise, and for sums. Thread blocks take the ranges in
/// parallel.
inline constexpr std::int32_t kArgmaxPiece = 8192;
/// Entries that a thread block of launch_top_k() selects from, 16 in the registers of each of its 256 threads.
inline constexpr std::int32_t kTopKPiece = 4096;

/// Returns the number of ranges of `each` entries into which `n` entries are divided.
[[nodiscard]] constexpr std::int32_t sampling_pieces(std::int32_t n, std::int32_t each) {
    return (n + each - 1) / each;
}
/// Returns the bytes of ArgmaxLaunch::scratch: a best value and its id for each range of each row.
[[nodiscard]] constexpr std::size_t argmax_scratch_bytes(std::int32_t n, std::int32_t vocab) {
    return 8 * static_cast<std::size_t>(n) * static_cast<std::size_t>(sampling_pieces(vocab, kArgmaxPiece));
}
/// Returns the bytes of GumbelLaunch::scratch: the greatest logit of each row and its id, then what argmax needs.
[[nodiscard]] constexpr std::size_t gumbel_scratch_bytes(std::int32_t n, std::int32_t vocab) {
    return argmax_scratch_bytes(n, vocab) + 8 * static_cast<std::size_t>(n);
}
/// Returns the bytes of LogitSumLaunch::scratch: a sum for each range of each row.
[[nodiscard]] constexpr std::size_t logit_sum_scratch_bytes(std::int32_t n, std::int32_t vocab) {
    return 4 * static_cast<std::size_t>(n) * static_cast<std::size_t>(sampling_pieces(vocab, kArgmaxPiece));
}
/// Returns the bytes of TopKLaunch::scratch: k values and ids of each range of each row, twice, since the best are
/// selected from selections again, alternating between two halves.
[[nodiscard]] constexpr std::size_t top_k_scratch_bytes(std::int32_t n, std::int32_t vocab, std::int32_t k) {
    const auto first = static_cast<std::size_t>(k) * static_cast<std::size_t>(sampling_pieces(vocab, kTopKPiece));
    return 2 * 8 * static_cast<std::size_t>(n) * first;
}

}  // namespace slipstream::cuda
