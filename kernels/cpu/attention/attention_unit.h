// A unit of attention on the CPU: one kv head and a run of tokens whose query heads share it. Knows which slots a query
// sees and where their rows lie; reduces chunk by chunk into states that its caller folds.
//
// For each step of 64 slots the rows come straight from the chunk where all of them are committed; otherwise they are
// gathered by position into a tile, which the next token of the unit inherits: only the slots where its path differs
// are copied again. Queries that see the same slots of the same tile are reduced four at a time. Nothing of this
// touches the arithmetic of a query.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cpu/attention/attention_step.h"

namespace slipstream::cpu {

/// Bytes of a unit's tiles: gathered rows, and widened rows (the same for forms that widen none).
[[nodiscard]] std::size_t attention_tiles_bytes(const KvShape& shape);

class AttentionUnit {
public:
    /// `tiles`: attention_tiles_bytes, this thread's own. `args` must outlive the unit.
    AttentionUnit(const AttentionArgs& args, const AttentionForm& form, std::byte* tiles, std::int64_t head,
                  std::int64_t first_token, std::int64_t n_tokens);

    /// Query heads of all tokens: query i is head i mod group of token i / group.
    [[nodiscard]] std::int64_t n_queries() const { return n_tokens_ * group_; }
    /// Chunks of the call's range that a query of the unit sees; none where first > last.
    [[nodiscard]] std::int64_t first_chunk() const { return first_chunk_; }
    [[nodiscard]] std::int64_t last_chunk() const { return last_chunk_; }
    /// Number of query i among all of the call, [n_tokens, n_q_heads].
    [[nodiscard]] std::int64_t query(std::int64_t i) const {
        return (first_token_ + i / group_) * args_.n_q_heads + head_ * group_ + i % group_;
    }
    /// Query vector and result of query i, each [head_dim].
    [[nodiscard]] const float* q(std::int64_t i) const;
    [[nodiscard]] float* out(std::int64_t i) const;

    /// Reduces `chunk` from fresh states: chunk_states[n_queries], whose q and o the caller has set. A query that
    /// sees nothing of the chunk is left with l = 0. `next_chunk` is what the caller will ask for next; kNoChunk where
    /// that is not of this unit.
    void reduce_chunk(std::int64_t chunk, std::int64_t next_chunk, QueryState* chunk_states);
    static constexpr std::int64_t kNoChunk = -1;

private:
    [[nodiscard]] std::int64_t position(std::int64_t i) const { return args_.positions[first_token_ + i]; }
    [[nodiscard]] std::int64_t lowest_visible(std::int64_t i) const;
    struct Place {  // of a step in the cache
        std::int64_t chunk;
        std::int64_t step;
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

    const AttentionArgs& args_;
    AttentionForm form_;
    std::byte* k_tile_;  // [head_dim][64]
    std::byte* v_tile_;  // [64][head_dim]
    float* k_wide_;      // the same, widened
    float* v_wide_;
    std::size_t step_bytes_;   // of keys, and of values
    std::size_t head_offset_;  // of its keys in a chunk; values follow value_offset_ behind
    std::size_t value_offset_;
    std::int64_t head_;
    std::int64_t group_;
    std::int64_t first_token_;
    std::int64_t n_tokens_;
    std::int64_t first_chunk_;
    std::int64_t last_chunk_;
    std::array<std::int32_t, kStepTokens> tile_rows_{};  // scratch row in each slot of the tile
};

/// total <- total and chunk, both weighed against the larger maximum; nothing where the chunk was not seen.
void fold_chunk(QueryState& total, const QueryState& chunk, std::int64_t head_dim);

}  // namespace slipstream::cpu
