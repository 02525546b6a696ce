// Layout of a KV chunk of one layer in the memory of a CPU device.
//
// clang-format off
//   KV chunk: [n_kv_heads][K part | V part]
//   K part:   [4 steps][head_dim][64 slots]   keys of a step, transposed: one load gives 16 slots of one dimension, so
//                                             that a score needs no horizontal sum
//   V part:   [256 slots][head_dim]           rows: one load gives 16 dimensions of one slot
// clang-format on
//
// In Q8_0 the codes of a step of 64 slots are laid out like that, and are followed by the step's scales:
//   K part:   [4 steps]{[head_dim][64 slots] codes, [blocks of 32 dimensions][64 slots] BF16 scales}
//   V part:   [4 steps]{[64 slots][head_dim] codes, [blocks of 32 dimensions][64 slots] BF16 scales}
// Where KvLayout pads a row to whole words, the padding of the 64 slots follows the scales: zeros, so that the bytes of
// a full chunk depend on its rows alone.
//
// Scratch rows are not transposed: KvLayout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/attention.h"

namespace slipstream::cpu {

/// Steps of 64 slots in a KV chunk of 256 positions.
inline constexpr std::int64_t kStepsPerChunk = kChunkTokens / kStepTokens;

/// Returns the bytes of `n` elements, or codes, without scales and padding.
[[nodiscard]] inline std::size_t element_bytes(const KvLayout& shape, std::int64_t n) {
    return shape.has_scales() ? static_cast<std::size_t>(n) : row_bytes(shape.dtype, n);
}

/// Returns the byte offset, in a KV chunk, of the keys of step `step` (0 to 3) of kv head `head`.
[[nodiscard]] inline std::size_t k_step_offset(const KvLayout& shape, std::int64_t head, std::int64_t step) {
    return static_cast<std::size_t>(head) * 2 * shape.part_bytes() +
           static_cast<std::size_t>(step) * shape.step_bytes();
}

/// Returns the byte offset, in a KV chunk, of the value row of slot `slot` (0 to 255) of kv head `head`.
[[nodiscard]] inline std::size_t v_row_offset(const KvLayout& shape, std::int64_t head, std::int64_t slot) {
    return (static_cast<std::size_t>(head) * 2 + 1) * shape.part_bytes() +
           static_cast<std::size_t>(slot / kStepTokens) * shape.step_bytes() +
           static_cast<std::size_t>(slot % kStepTokens) * element_bytes(shape, shape.head_dim);
}

/// Returns the byte offset, in the keys or values of a step, of the scale of block `block` of slot `slot` (0 to 63);
/// only if shape.has_scales().
[[nodiscard]] inline std::size_t scale_offset(const KvLayout& shape, std::int64_t block, std::int64_t slot) {
    return static_cast<std::size_t>(kStepTokens * (shape.head_dim + 2 * block) + 2 * slot);
}

/// Copies the scales of a row, [shape.head_scales()], to their places in the keys or values of a step, and clears the
/// row's padding.
inline void put_scales(const KvLayout& shape, std::byte* step, const std::byte* scales, std::int64_t slot) {
    const std::int64_t n = shape.head_scales();
    for (std::int64_t block = 0; block < n; ++block)
        std::memcpy(step + scale_offset(shape, block, slot), scales + 2 * block, sizeof(BFloat16));
    const std::size_t padding = shape.head_row_bytes() - static_cast<std::size_t>(shape.head_dim + 2 * n);
    if (padding > 0)
        std::memset(step + scale_offset(shape, n, 0) + padding * static_cast<std::size_t>(slot), 0, padding);
}

/// Copies a key row, [head_dim], into column `slot` (0 to 63) of a transposed step, [head_dim][64]. `Element` is an
/// unsigned integer of the size of the KV type's elements: uint8_t, uint16_t or uint32_t.
template <typename Element>
inline void put_key_column(Element* step, const Element* row, std::int64_t head_dim, std::int64_t slot) {
    for (std::int64_t d = 0; d < head_dim; ++d) step[d * kStepTokens + slot] = row[d];
}

}  // namespace slipstream::cpu
