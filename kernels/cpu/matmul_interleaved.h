// What the vector forms of matmul share: the walk over rows, tokens and K (matmul_interleaved.cpp), and the table of
// inner kernels that each form fills in. The walk decides which outputs are computed when; their bits are defined in
// matmul.h and made by the inner kernels alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/unpack_codes.h"

namespace slipstream::cpu {

inline constexpr int kMaxTileTokens = 16;
/// Weights are fetched into L2 a chunk ahead of the kernel, and from there into L1 this far ahead. One step into L1
/// alone holds one of its few fill buffers for the whole way from memory (numbers: kernels/README.md).
inline constexpr std::int64_t kL1PrefetchBytes = 1 << 10;
inline constexpr std::int64_t kL2PrefetchBytes = 1 << 14;

inline constexpr std::int64_t kPairBytes = 4;  // two activations as bfloat16
inline constexpr int kFloatTypes = 3;          // F32, F16, BF16: the first of DType

/// What a kernel fetches while it computes: a share of its groups' weights, spread evenly over its steps, so that
/// memory stays busy while tiles behind the first are computed. For the first group; the others' lie group_bytes
/// further on.
struct WeightsAhead {
    const std::byte* into_l1;
    const std::byte* into_l2;
    std::int64_t step_bytes;  // a step: two k of float weights, a sub-block of codes
};

/// Some groups of 16 rows x one chunk of K x one tile of T tokens: adds to `sums`.
struct FloatTile {
    const std::byte* weights;  // packed, `k` elements, of the first group
    std::int64_t group_bytes;  // from a group to the next
    int n_groups;
    const std::byte* x;  // [k, T] floats, or [ceil(k / 2), T] pairs of bfloat16, 0 beside the last of an odd k
    std::int64_t k;
    float* sums;               // [T, 16] of the first group
    std::int64_t sums_stride;  // floats from a group to the next
    WeightsAhead ahead;
};
struct CodeTile {
    const UnpackedChunk* unpacked;  // [n_groups]; scales at most, where packed codes are multiplied as they are
    const std::byte* packed;        // the chunk of the first group
    std::int64_t group_bytes;
    int n_groups;
    const std::byte* x;  // [n_sub] blocks of T tokens (activations.h)
    int n_sub;
    float* sums;  // as above
    std::int64_t sums_stride;
    WeightsAhead ahead;
};

struct InterleavedForm {
    using FloatFn = void (*)(const FloatTile& tile);
    using CodeFn = void (*)(const CodeTile& tile);
    using UnpackFn = void (*)(const std::byte* src, std::size_t block_bytes, int n_sub, UnpackedChunk& out);
    using QuantizeFn = void (*)(const float* x, std::int64_t k, int t, int n_tile, const CodeTraits& traits,
                                std::byte* tile);
    using RoundFn = void (*)(const float* x, std::size_t row_stride_bytes, std::int64_t k, int n_tile, std::byte* tile);

    int float_tile_tokens;  // most tokens of a tile: what the registers hold
    int code_tile_tokens;
    std::array<int, kMaxTileTokens> float_groups;  // [T - 1]: groups that go over K together, with few tokens
    int code_groups;
    std::array<std::array<FloatFn, kMaxTileTokens>, kFloatTypes> multiply_floats;  // [dtype][T - 1]
    std::array<std::array<CodeFn, kMaxTileTokens>, kDTypeCount> multiply_codes;    // [dtype][T - 1]
    std::array<UnpackFn, kDTypeCount> unpack;                                      // [dtype]

    // Codes that are multiplied where they lie, where a call has at most so many tiles of tokens.
    using ScalesFn = void (*)(const std::byte* src, UnpackedChunk& out);
    std::array<int, kDTypeCount> most_packed_tiles{};                               // [dtype]
    std::array<std::array<CodeFn, kMaxTileTokens>, kDTypeCount> multiply_packed{};  // [dtype][T - 1]
    std::array<ScalesFn, kDTypeCount> unpack_scales{};  // [dtype]: of a chunk, first; null where there is nothing to do

    QuantizeFn quantize;

    // BF16 weights times activations rounded to bfloat16, in forms that have such dot products.
    RoundFn round_pairs = nullptr;  // a tile of tokens into pairs; null: BF16 weights are multiplied as floats
    int pair_tile_tokens = 0;
    std::array<int, kMaxTileTokens> pair_groups{};
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
