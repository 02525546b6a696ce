// What the inner kernels for one token share (matmul_vnni_one.cpp, matmul_avx2_one.cpp).
#pragma once

#include <array>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cpu/activations.h"
#include "kernels/cpu/matmul_interleaved.h"

namespace slipstream::cpu {

/// Groups that go over K together, each a stream of weights.
inline constexpr int kMostStreams = 4;

using AtOne = BlockOffsets<1>;
using OneTokenKernels = std::array<InterleavedForm::CodeFn, kDTypeCount>;

/// `distance` ahead of `at` bytes into a group; from the end of a tile's groups on, in those behind them.
constexpr std::int64_t distance_from(const CodeTile& tile, std::int64_t at, std::int64_t distance) {
    return at + distance < tile.group_bytes ? distance : distance + (tile.n_groups - 1) * tile.group_bytes;
}

/// By type; for the forms avx2 and avx512, and for those with VNNI.
[[nodiscard]] const OneTokenKernels& multiply_one_avx2();
[[nodiscard]] const OneTokenKernels& multiply_one_vnni();

}  // namespace slipstream::cpu
