// How a chunk of one layer lies in the CPU's memory.
//
//   chunk:  [n_kv_heads][K part | V part]
//   K part: [4 steps][head_dim][64 slots]   a step's keys transposed: one load gives 16 slots of one dimension, so that
//   a
//                                           score needs no horizontal sum
//   V part: [256 slots][head_dim]           rows: one load gives 16 dimensions of one slot
//
// Scratch rows are [n_kv_heads][head_dim], plain.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"

namespace slipstream::cpu {

inline constexpr std::int64_t kStepsPerChunk = kChunkTokens / kStepTokens;

/// First byte of a head's K part of step `step` in a chunk.
[[nodiscard]] inline std::size_t k_step_offset(const KvShape& shape, std::int64_t head, std::int64_t step) {
    return static_cast<std::size_t>(head) * 2 * shape.part_bytes() +
           row_bytes(shape.dtype, step * kStepTokens * shape.head_dim);
}

/// First byte of a head's V row of slot `slot` in a chunk.
[[nodiscard]] inline std::size_t v_row_offset(const KvShape& shape, std::int64_t head, std::int64_t slot) {
    return (static_cast<std::size_t>(head) * 2 + 1) * shape.part_bytes() +
           row_bytes(shape.dtype, slot * shape.head_dim);
}

/// Writes a key row [head_dim] into column `slot` of a transposed step [head_dim][64]. Element: uint16_t or uint32_t.
template <typename Element>
inline void put_key_column(Element* step, const Element* row, std::int64_t head_dim, std::int64_t slot) {
    for (std::int64_t d = 0; d < head_dim; ++d) step[d * kStepTokens + slot] = row[d];
}

}  // namespace slipstream::cpu
