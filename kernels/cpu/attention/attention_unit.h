// A unit of attention on the CPU: one kv head and consecutive tokens, with all query heads that share the kv head. The
// unit knows which slots a query sees and where the rows of these slots are. It reduces one KV chunk at a time into
// states, which the caller folds.
//
// If all 64 slots of a step are committed, the rows are read from the KV chunk. Otherwise they are gathered by position
// into a tile. The tile is kept for the next token of the unit, and only the slots where that token's path differs are
// copied again. A few queries of a tile that attend to the same slots are reduced together. None of this changes the
// arithmetic of a query.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cpu/attention/attention_step.h"

namespace slipstream::cpu {

/// Returns the bytes of a unit's tiles: one step of gathered rows and one step of rows widened to float, K and V each.
/// A kernel variant that does not widen needs the same.
[[nodiscard]] std::size_t attention_tiles_bytes(const KvLayout& shape);

/// A kv head and the tokens [first_token, first_token + n_tokens) of an attention call. Used by one thread.
class AttentionUnit {
public:
    /// `tiles` is memory of attention_tiles_bytes() bytes that only this thread uses while the unit exists. `head` is
    /// the kv head. `args` must outlive the unit.
    AttentionUnit(const AttentionArgs& args, const AttentionForm& form, std::byte* tiles, std::int64_t head,
                  std::int64_t first_token, std::int64_t n_tokens);

    /// Returns the number of queries: one for each token and query head of the kv head. With group = query heads per kv
    /// head, query i belongs to token i / group of the unit and to query head i mod group of the kv head.
    [[nodiscard]] std::int64_t n_queries() const { return n_tokens_ * group_; }
    /// Returns the first KV chunk of the call's range that a query of the unit sees. If it is greater than
    /// last_chunk(), the unit sees none.
    [[nodiscard]] std::int64_t first_chunk() const { return first_chunk_; }
    /// Returns the last KV chunk of the call's range that a query of the unit sees.
    [[nodiscard]] std::int64_t last_chunk() const { return last_chunk_; }
    /// Returns the index of query i of the unit among all queries of the call, [n_tokens, n_q_heads].
    [[nodiscard]] std::int64_t query(std::int64_t i) const {
        return (first_token_ + i / group_) * args_.n_q_heads + head_ * group_ + i % group_;
    }
    /// Reduces KV chunk `chunk` into chunk_states, [n_queries()], from fresh states: overwrites m, l and o. The caller
    /// must have set the pointers q and o. A query that sees no slot of the chunk is left with m = -infinity and l = 0.
    /// `next_chunk` is the KV chunk of this unit that the caller will reduce next, kNoChunk if there is none; its first
    /// step of slots is prefetched if all of them are committed.
    void reduce_chunk(std::int64_t chunk, std::int64_t next_chunk, QueryState* chunk_states);

private:
    [[nodiscard]] std::int64_t position(std::int64_t i) const { return args_.positions[first_token_ + i]; }
    [[nodiscard]] std::int64_t lowest_visible(std::int64_t i) const;
    struct Place {           // a step of 64 slots in the KV cache
        std::int64_t chunk;  // number of the KV chunk
        std::int64_t step;   // step of the KV chunk, 0 to 3
    };
    void reduce_slots(Place place, Place next, QueryState* states);
    void widen(AttentionStep& view);
    [[nodiscard]] bool committed(Place place) const;
    [[nodiscard]] const std::byte* keys(Place place) const {
        return args_.chunks[place.chunk] + head_offset_ + static_cast<std::size_t>(place.step) * step_bytes_;
    }
    [[nodiscard]] const std::byte* values(Place place) const { return keys(place) + value_offset_; }
    void start_tile(Place place);
    template <typename Flush>
    void follow_path(std::int64_t token, std::int64_t base, int end, const Flush& flush);
    template <typename Element>
    void gather_row(std::int32_t row, int slot);
    [[nodiscard]] std::size_t scratch_offset(std::int32_t row) const {
        return static_cast<std::size_t>(row) * args_.shape.scratch_row_bytes() +
               static_cast<std::size_t>(head_) * args_.shape.head_row_bytes();
    }
    [[nodiscard]] std::size_t scales_offset(std::int32_t row) const {
        return scratch_offset(row) + args_.shape.head_code_bytes();
    }

    const AttentionArgs& args_;
    AttentionForm form_;
    std::byte* k_tile_;         // gathered keys of a step, laid out as in a KV chunk (kv_layout.h)
    std::byte* v_tile_;         // gathered values of a step
    float* k_wide_;             // [head_dim][64]: widened keys
    float* v_wide_;             // [64][head_dim]: widened values
    std::size_t step_bytes_;    // bytes of the keys of a step, and of its values
    std::size_t head_offset_;   // bytes from the begin of a KV chunk to the keys of head_
    std::size_t value_offset_;  // bytes from the keys of head_ to its values
    std::int64_t head_;         // kv head
    std::int64_t group_;        // query heads per kv head
    std::int64_t first_token_;
    std::int64_t n_tokens_;
    std::int64_t first_chunk_;
    std::int64_t last_chunk_;
    std::array<std::int32_t, kStepTokens> tile_rows_{};  // the scratch row that each slot of the tile holds
};

}  // namespace slipstream::cpu
