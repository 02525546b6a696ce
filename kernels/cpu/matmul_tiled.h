// What the vector forms of matmul share: the walk over rows, tokens and K (matmul_tiled.cpp), and the table of inner
// kernels that each form fills in. The walk only decides which outputs are computed when; their bits are defined in
// matmul.h and made by the inner kernels alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cpu/matmul.h"

namespace slipstream::cpu {

/// Partial sums of one output, and the step of k.
inline constexpr int kLanes = 32;
/// Rows that an inner kernel works on at once. Short tiles repeat their last row.
inline constexpr int kTileRows = 4;
/// decode_row reads a stream (rows follow one another): so far ahead of it weights are fetched.
inline constexpr std::int64_t kDecodePrefetchBytes = 4096;
inline constexpr int kMaxFusedTokens = 3;
inline constexpr int kMaxPanelTokens = 6;

/// Weights read and decoded in registers, for few tokens.
struct FusedTile {
    std::array<const std::byte*, kTileRows> rows;  // [K] each, encoded, any alignment
    const float* x;                                // [n_tokens, K]
    std::int64_t x_stride;                         // floats between tokens
    std::int64_t k;
    std::size_t prefetch_bytes;  // distance ahead, the same for each row
    float* sums;                 // out: [kTileRows, n_tokens]
};

/// Decoded weights, for many tokens: adds n_steps steps of kLanes to the partial sums.
struct PanelTile {
    const float* weights;         // [kTileRows, n_steps * kLanes]
    std::int64_t weights_stride;  // floats between rows
    const float* x;               // [n_tokens, n_steps * kLanes]
    std::int64_t x_stride;        // floats between tokens
    std::int64_t n_steps;
    float* lanes;  // in and out: [n_tokens, kTileRows, kLanes]
};

struct TiledForm {
    using FusedFn = void (*)(const FusedTile& tile);
    using PanelFn = void (*)(const PanelTile& tile);
    using DecodeFn = void (*)(const std::byte* row, float* dst, std::int64_t k);
    using ReduceFn = void (*)(const float* lanes, float* sums, std::int64_t n_outputs);

    int max_fused_tokens;                                                 // up to here fused, from here panels
    int max_panel_tokens;                                                 // tokens of a panel tile
    std::array<std::array<FusedFn, kMaxFusedTokens>, kDTypeCount> fused;  // [dtype][n_tokens - 1]
    std::array<PanelFn, kMaxPanelTokens> panel;                           // [n_tokens - 1]
    std::array<DecodeFn, kDTypeCount> decode_row;  // dst [round_up(k, kLanes)], zero behind k; bits of dequantize_row
    ReduceFn reduce;                               // sums[i] = halved lanes[i][kLanes]
};

/// The inner kernels; only for machines that have the instructions (best_cpu_form()).
[[nodiscard]] const TiledForm& tiled_form_avx2();
[[nodiscard]] const TiledForm& tiled_form_avx512();

void matmul_tiled(ExecRef exec, const MatmulArgs& args, const TiledForm& form);

}  // namespace slipstream::cpu
