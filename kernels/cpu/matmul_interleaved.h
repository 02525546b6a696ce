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

inline constexpr int kMaxTileTokens = 8;
/// Weights are fetched into L2 this far ahead of the kernel, and into L1 a little ahead. One step into L1 alone holds
/// one of its few fill buffers for the whole way from memory (numbers: kernels/README.md).
inline constexpr std::int64_t kL2PrefetchBytes = 16 << 10;
inline constexpr std::int64_t kL1PrefetchBytes = 1 << 10;

inline constexpr int kFloatTypes = 3;   // F32, F16, BF16: the first of DType
inline constexpr int kFloatChains = 2;  // sums of an output over even and odd k

/// One group of 16 rows x one chunk of K x one tile of T tokens: adds to `sums`.
struct FloatTile {
    const std::byte* weights;  // packed, `k` elements
    const float* x;            // [k, T]
    std::int64_t k;
    float* sums;                     // [kFloatChains, T, 16]
    std::int64_t l2_prefetch_bytes;  // so far ahead of each read weights are fetched into L2; 0: not
    std::int64_t l1_prefetch_bytes;  // and from there into L1
};
struct CodeTile {
    const UnpackedChunk* weights;
    const std::byte* x;  // [n_sub] blocks of T tokens (activations.h)
    int n_sub;
    float* sums;                  // [T, 16]
    const std::byte* prefetch;    // the packed chunk: from kL2PrefetchBytes and kL1PrefetchBytes behind here on,
    std::int64_t prefetch_bytes;  // so many bytes are fetched while each sub-block is computed; 0: none
};

struct InterleavedForm {
    using FloatFn = void (*)(const FloatTile& tile);
    using CodeFn = void (*)(const CodeTile& tile);
    using UnpackFn = void (*)(const std::byte* src, std::size_t block_bytes, int n_sub, UnpackedChunk& out);
    using QuantizeFn = void (*)(const float* x, std::int64_t k, int t, int n_tile, const CodeTraits& traits,
                                std::byte* tile);

    int float_tile_tokens;  // most tokens of a tile: what the registers hold
    int code_tile_tokens;
    std::array<std::array<FloatFn, kMaxTileTokens>, kFloatTypes> multiply_floats;  // [dtype][T - 1]
    std::array<std::array<CodeFn, kMaxTileTokens>, kDTypeCount> multiply_codes;    // [dtype][T - 1]
    std::array<UnpackFn, kDTypeCount> unpack;                                      // [dtype]
    QuantizeFn quantize;
};

/// The inner kernels; only for machines that have the instructions (best_cpu_form()).
[[nodiscard]] const InterleavedForm& interleaved_form_avx2();
[[nodiscard]] const InterleavedForm& interleaved_form_avx512();
[[nodiscard]] const InterleavedForm& interleaved_form_avx512_vnni();

/// Weights of either layout: rows that are not packed are interleaved group by group in a thread's scratch.
void matmul_interleaved(ExecRef exec, const MatmulArgs& args, const InterleavedForm& form);

}  // namespace slipstream::cpu
