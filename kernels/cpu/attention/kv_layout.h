// Layout of a KV chunk of one layer in the memory of a CPU device.
//
// clang-format off
//   KV chunk: [n_kv_heads][K part | V part]
//   K part:   [4 steps][head_dim][64 slots]   keys of a step, transposed: one load gives 16 slots of one dimension, so
//                                             that a score needs no horizontal sum
//   V part:   [256 slots][head_dim]           rows: one load gives 16 dimensions of one slot
// clang-format on
//
// Scratch rows are not transposed: [n_kv_heads][head_dim].
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"

namespace slipstream::cpu {

/// Steps of 64 slots in a KV chunk of 256 positions.
inline constexpr std::int64_t kStepsPerChunk = kChunkTokens / kStepTokens;

/// Returns the byte offset, in a KV chunk, of the keys of step `step` (0 to 3) of kv head `head`.
[[nodiscard]] inline std::size_t k_step_offset(const KvLayout& shape, std::int64_t head, std::int64_t step) {
    return static_cast<std::size_t>(head) * 2 * shape.part_bytes() +
           row_bytes(shape.dtype, step * kStepTokens * shape.head_dim);
}

/// Returns the byte offset, in a KV chunk, of the value row of slot `slot` (0 to 255) of kv head `head`.
[[nodiscard]] inline std::size_t v_row_offset(const KvLayout& shape, std::int64_t head, std::int64_t slot) {
    return (static_cast<std::size_t>(head) * 2 + 1) * shape.part_bytes() +
           row_bytes(shape.dtype, slot * shape.head_dim);
}

/// Copies a key row, [head_dim], into column `slot` (0 to 63) of a transposed step, [head_dim][64]. `Element` is an
/// unsigned integer of the size of the KV type: uint16_t or uint32_t.
template <typename Element>
inline void put_key_column(Element* step, const Element* row, std::int64_t head_dim, std::int64_t slot) {
    for (std::int64_t d = 0; d < head_dim; ++d) step[d * kStepTokens + slot] = row[d];
}

}  // namespace slipstream::cpu
