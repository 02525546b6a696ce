// What the vector forms of matmul share: the walk over rows, tokens and K (matmul_interleaved.cpp), and the table of
// inner kernels that each form fills in. The walk decides which outputs are computed when; their bits are defined in
// matmul.h and made by the inner kernels alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/matmul/unpack_codes.h"

namespace slipstream::cpu {

inline constexpr int kMaxTileTokens = 16;
inline constexpr int kMostFewTokens = 8;

/// How far ahead of the kernel weights are fetched, in bytes.
struct FetchDistance {
    std::int64_t l1;  // of each group
    std::int64_t l2;  // of the groups that go over K together, rounded up to whole chunks; 0: not into L2, which only
                      // kernels know that may be given one group alone
};

/// Groups that go over K together are as many streams of weights. As a rule they are fetched into L2 and from there
/// into L1: one step into L1 alone holds one of its few fill buffers for the whole way from memory. With few tokens
/// some machines read faster where one group goes alone, fetched straight into L1 (numbers: kernels/NOTES.md).
struct Streams {
    int most_tokens_of_one = 0;  // up to so many one group goes alone
    FetchDistance one{.l1 = 8 << 10, .l2 = 0};
    FetchDistance several{.l1 = 1 << 10, .l2 = 16 << 10};
};

/// Codes of few tokens: how far ahead of each group its own weights are fetched. Distances that are multiples of a
/// large power of two read slower (numbers: kernels/NOTES.md).
inline constexpr FetchDistance kFewTokensFetch{.l1 = 1760, .l2 = 3520};
/// Their groups that go over K together, each a stream of weights: as many as registers hold sums of.
constexpr int few_tokens_streams(std::int64_t n_tokens) {
    return n_tokens <= 2 ? 4 : 2;
}

inline constexpr std::int64_t kPairBytes = 4;  // two activations as bfloat16
inline constexpr int kFloatTypes = 3;          // F32, F16, BF16: the first of DType

/// What a kernel fetches while it computes: a share of its groups' weights, spread evenly over its steps, so that
/// memory stays busy while tiles behind the first are computed. For the first group; the others' lie group_bytes
/// further on.
struct WeightsAhead {
    const std::byte* into_l1;
    const std::byte* into_l2;
    std::int64_t step_bytes;  // a step: two k of float weights, a sub-block of codes
    bool by_l2;               // false, where one group goes alone: only into L1
};

/// Some groups of 16 rows x one chunk of K x one tile of T tokens: adds to `sums`, or writes them.
struct FloatTile {
    const std::byte* weights;  // packed, `k` elements, of the first group
    std::int64_t group_bytes;  // from a group to the next
    int n_groups;
    const std::byte* x;  // [k, T] floats, or [ceil(k / 2), T] pairs of bfloat16, 0 beside the last of an odd k
    std::int64_t k;
    float* sums;               // [T, 16] of the first group
    std::int64_t sums_stride;  // floats from a group to the next
    bool from_zero;            // the first chunk: what lies in `sums` is not read
    WeightsAhead ahead;
};
/// The same of `n_tiles` tiles that lie behind one another, in x and in `sums`.
struct CodeTile {
    int n_tiles;
    UnpackedChunk* unpacked;  // [n_groups]; scratch for scales, where packed codes are multiplied as they are
    const std::byte* packed;  // the chunk of the first group
    std::int64_t group_bytes;
    int n_groups;
    const std::byte* x;     // [n_sub] blocks of T tokens (activations.h)
    std::int64_t x_stride;  // bytes from a tile to the next
    int n_sub;
    float* sums;  // as above
    std::int64_t sums_stride;
    bool from_zero;
    WeightsAhead ahead;
};

/// Sums of some groups and tokens to where the outputs lie: finish_output (matmul.h).
struct FinishTile {
    const float* sums;         // [n_tokens, 16] of the first group
    std::int64_t sums_stride;  // floats from a group to the next
    const float* bias;         // [n_rows]; may be null
    std::byte* y;              // the output of the first token and row
    std::size_t y_stride_bytes;
    std::int64_t n_tokens;
    std::int64_t n_rows;  // of all groups
    MatmulStore store;
};

struct InterleavedForm {
    using FloatFn = void (*)(const FloatTile& tile);
    using CodeFn = void (*)(const CodeTile& tile);
    using UnpackFn = void (*)(const std::byte* src, std::size_t block_bytes, int n_sub, UnpackedChunk& out);
    using FinishFn = void (*)(const FinishTile& tile);
    using QuantizeFn = void (*)(const float* x, std::int64_t k, int t, int n_tile, const CodeTraits& traits,
                                std::byte* tile);
    using RoundFn = void (*)(const float* x, std::size_t row_stride_bytes, std::int64_t k, int n_tile, std::byte* tile);

    int float_tile_tokens;  // most tokens of a tile: what the registers hold
    int code_tile_tokens;
    std::array<int, kMaxTileTokens> float_groups;  // [T - 1]: groups that go over K together, with few tokens
    int code_groups;
    Streams code_streams{};
    std::array<std::array<FloatFn, kMaxTileTokens>, kFloatTypes> multiply_floats;  // [dtype][T - 1]
    std::array<std::array<CodeFn, kMaxTileTokens>, kDTypeCount> multiply_codes;    // [dtype][T - 1]
    std::array<UnpackFn, kDTypeCount> unpack;                                      // [dtype]

    // The same where codes lie packed; keeps them unpacked for the tiles behind. Empty: codes are unpacked beforehand.
    std::array<std::array<CodeFn, kMaxTileTokens>, kDTypeCount> multiply_keeping{};  // [dtype][T - 1]

    // Codes of a call of few tokens, one tile: whole rows of up to few_tokens_streams() groups, but for what is behind
    // the last whole step. Empty: as any tile.
    std::array<std::array<CodeFn, kMostFewTokens>, kDTypeCount> multiply_few{};  // [dtype][T - 1]

    // Codes that are multiplied where they lie, where a call has at most so many tokens.
    int packed_one_tile = 0;                              // up to so many tokens are one tile
    int packed_tile_tokens = 0;                           // of more
    std::int64_t packed_chunk_elements = kChunkElements;  // at most, that a kernel goes over at once
    std::array<int, kDTypeCount> most_packed_tokens{};    // [dtype]
    std::array<std::array<CodeFn, kMaxTileTokens>, kDTypeCount> multiply_packed{};  // [dtype][T - 1]

    QuantizeFn quantize;
    FinishFn finish;

    // BF16 weights times activations rounded to bfloat16, in forms that have such dot products.
    RoundFn round_pairs = nullptr;  // a tile of tokens into pairs; null: BF16 weights are multiplied as floats
    int pair_tile_tokens = 0;
    std::array<int, kMaxTileTokens> pair_groups{};
    Streams pair_streams{};
    std::array<FloatFn, kMaxTileTokens> multiply_pairs{};  // [T - 1]
};

/// The inner kernels; only for machines that have the instructions (cpu_has_form()).
[[nodiscard]] const InterleavedForm& interleaved_form_avx2();
[[nodiscard]] const InterleavedForm& interleaved_form_avx512();
[[nodiscard]] const InterleavedForm& interleaved_form_avx512_vnni();
[[nodiscard]] const InterleavedForm& interleaved_form_avx512_bf16();

/// What any matmul within the shapes takes of a device.
[[nodiscard]] CpuScratch matmul_scratch_interleaved(const WorkspaceShapes& shapes, const InterleavedForm& form);

/// Weights of either layout: rows that are not packed are interleaved group by group in a thread's scratch.
void matmul_interleaved(ExecRef exec, const MatmulArgs& args, const InterleavedForm& form);

}  // namespace slipstream::cpu
