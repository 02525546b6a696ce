// The plan of a matmul: how many k are loaded together (a unit), how K is divided into parts, and what scratch holds.
// It depends on the type of the weights and on K alone. Batch invariance (E1) needs that, since the rows of a matrix
// may be divided into several items. Plain numbers, for the host and for launches.
//
// Scratch: | activations | sums | factors |. K is filled up with zeros to a multiple of 256, n_tokens to n_tiles tiles
// of 8 tokens, as many as a kernel takes at once (the contents of columns past n_tokens reach no output):
// clang-format off
//   activations  [K / 16][n_tiles][32 lanes][2 words]: operand B of each mma, bfloat16 (F16 weights: binary16)
//   sums         [K / 32][n_tiles * 8] floats: of the rounded activations, for types with offsets
//   factors      [n_tiles * 8] floats, for F16: undo the power of two that a token was multiplied by
// clang-format on
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cuda/matmul/activation_destination.h"

namespace slipstream::cuda {

/// Tokens of a tile: 8, the columns of an mma.
inline constexpr std::int64_t kTokensPerTile = 8;
/// Most parts into which K is divided: one for each of the 8 warps of a thread block. The bits of results depend on it.
inline constexpr std::int64_t kMaxParts = 8;

/// Returns the tiles of 8 tokens that scratch has for n_tokens tokens: 0, 1, 2, 4, or a multiple of 8.
[[nodiscard]] constexpr std::int64_t matmul_tiles_of(std::int64_t n_tokens) {
    const std::int64_t n_tiles = (n_tokens + kTokensPerTile - 1) / kTokensPerTile;
    if (n_tiles <= 2) return n_tiles;
    return n_tiles <= 4 ? 4 : (n_tiles + 7) / 8 * 8;
}

/// The format of prepared activations: what is computed from x before the matmul kernels. None: they read x itself.
/// WithSums: with sums of each 32 rounded activations.
enum class ScratchKind : std::int32_t { None, Bf16, Bf16WithSums, F16 };

/// Returns the format of activations that weights of `type` are multiplied with.
[[nodiscard]] constexpr ScratchKind matmul_scratch_kind(DType type) {
    switch (type) {
        case DType::F32:
            return ScratchKind::None;
        case DType::F16:
            return ScratchKind::F16;
        case DType::Q4_1:
        case DType::Q5_1:
        case DType::Q4_K:
        case DType::Q5_K:
            return ScratchKind::Bf16WithSums;
        default:
            return ScratchKind::Bf16;
    }
}

/// Returns the format for a launch whose last matrix has another type; matmul_mixes() must be true for the types.
[[nodiscard]] constexpr ScratchKind matmul_scratch_kind(DType type, DType last) {
    return std::max(matmul_scratch_kind(type), matmul_scratch_kind(last));
}

/// Elements and bytes of a quantisation block, as in dtype_info(), for code that is compiled for a GPU.
struct WeightBlock {
    std::int64_t elements;
    std::int64_t bytes;
};
[[nodiscard]] constexpr WeightBlock weight_block(DType type) {
    switch (type) {
        case DType::F32:
            return {1, 4};
        case DType::F16:
        case DType::BF16:
            return {1, 2};
        case DType::Q8_0:
            return {32, 34};
        case DType::Q4_0:
            return {32, 18};
        case DType::Q4_1:
            return {32, 20};
        case DType::Q5_0:
            return {32, 22};
        case DType::Q5_1:
            return {32, 24};
        case DType::Q3_K:
            return {256, 110};
        case DType::Q4_K:
            return {256, 144};
        case DType::Q5_K:
            return {256, 176};
        case DType::Q6_K:
            return {256, 210};
        case DType::IQ4_NL:
            return {32, 18};
        case DType::MXFP4:
            return {32, 17};
        case DType::IQ4_XS:
            return {256, 136};
        case DType::Q2_K:
            return {256, 84};
    }
    return {1, 0};
}

/// Returns the number of k in a unit: what a warp loads together, and what parts of K consist of.
[[nodiscard]] constexpr std::int64_t matmul_unit_k(DType type) {
    switch (type) {
        case DType::F32:
        case DType::F16:
        case DType::BF16:
            return 64;
        case DType::Q3_K:
        case DType::Q4_K:
        case DType::Q5_K:
        case DType::Q6_K:
        case DType::IQ4_XS:
        case DType::Q2_K:
            return 256;
        default:
            return 128;
    }
}

/// Whether one launch of n_tokens tokens may have matrices of `type` and a last matrix of type `last`.
[[nodiscard]] constexpr bool matmul_mixes(DType type, DType last, std::int64_t n_tokens) {
    if (n_tokens > kTokensPerTile) return false;
    if (type == DType::Q3_K) return last == DType::Q4_K || last == DType::Q5_K;
    return last == DType::Q6_K && (type == DType::Q4_K || type == DType::Q5_K);
}

/// Whether products with weights of `type` and width `k` can share a launch with those of other tokens
/// (MatmulGroupLaunch): types whose activations are rounded to bfloat16, in widths that all kernels take.
[[nodiscard]] constexpr bool matmul_groups(DType type, std::int64_t k) {
    const ScratchKind kind = matmul_scratch_kind(type);
    if (kind != ScratchKind::Bf16 && kind != ScratchKind::Bf16WithSums) return false;
    return k > 0 && (type != DType::BF16 || k % matmul_unit_k(type) == 0);
}

struct MatmulPlan {
    std::int64_t n_units = 0;  // units of K; the last one may be shorter
    std::int64_t n_parts = 0;  // part p consists of units [p * n_units / n_parts, (p + 1) * n_units / n_parts), at
                               // least one
};
/// Returns how K = `k` is divided for weights of `type`.
[[nodiscard]] constexpr MatmulPlan matmul_plan(DType type, std::int64_t k) {
    const std::int64_t unit = matmul_unit_k(type);
    const std::int64_t n_units = (k + unit - 1) / unit;
    return {n_units, std::min(n_units, kMaxParts)};
}

/// Layout of scratch. Offsets and sizes in bytes, all multiples of 16; the activations begin at 0.
struct MatmulScratch {
    std::int64_t n_tiles = 0;  // tiles of 8 tokens
    std::int64_t n_steps = 0;  // steps of 16 elements of K, those filled with zeros included
    std::size_t sums = 0;
    std::size_t factors = 0;
    std::size_t bytes = 0;
};
/// Returns the layout of scratch for n_tokens tokens of `k` activations; all zero for ScratchKind::None.
[[nodiscard]] constexpr MatmulScratch matmul_scratch(ScratchKind kind, std::int64_t k, std::int64_t n_tokens) {
    MatmulScratch out;
    if (kind == ScratchKind::None) return out;
    constexpr std::int64_t kFillTo = 256;  // the longest unit, so that types of one kind share scratch
    out.n_tiles = matmul_tiles_of(n_tokens);
    out.n_steps = (k + kFillTo - 1) / kFillTo * (kFillTo / 16);
    const auto row = static_cast<std::size_t>(out.n_tiles * kTokensPerTile) * sizeof(float);
    out.sums = static_cast<std::size_t>(out.n_steps * out.n_tiles) * 256;
    out.factors = out.sums + (kind == ScratchKind::Bf16WithSums ? static_cast<std::size_t>(out.n_steps / 2) * row : 0);
    out.bytes = out.factors + (kind == ScratchKind::F16 ? row : 0);
    return out;
}

/// Returns the bytes that MatmulLaunch::scratch must have.
[[nodiscard]] constexpr std::size_t matmul_scratch_bytes(DType type, std::int64_t k, std::int64_t n_tokens) {
    return matmul_scratch(matmul_scratch_kind(type), k, n_tokens).bytes;
}

/// Whether activations prepared in one format can be used where another is wanted.
[[nodiscard]] constexpr bool serves(ScratchKind prepared, ScratchKind wanted) {
    return prepared == wanted || (prepared == ScratchKind::Bf16WithSums && wanted == ScratchKind::Bf16);
}

/// Returns where prepared activations go in scratch at `base`. Only for the two bfloat16 formats are all fields right;
/// for the others only `fragments` is.
[[nodiscard]] inline ActivationDestination activation_destination(ScratchKind kind, std::int64_t k,
                                                                  std::int64_t n_tokens, void* base) {
    const MatmulScratch scratch = matmul_scratch(kind, k, n_tokens);
    auto* bytes = static_cast<char*>(base);
    return {.fragments = bytes,
            .sums = kind == ScratchKind::Bf16WithSums ? reinterpret_cast<float*>(bytes + scratch.sums) : nullptr,
            .n_tiles = scratch.n_tiles,
            .n_blocks = scratch.n_steps / 2};
}

}  // namespace slipstream::cuda
