// The KV cache of a draft model: the first tokens of the text (sinks) and the last ones, in consecutive slots, so that
// a model trained on short texts works at any position. (StreamingLLM, Xiao et al. 2023, arXiv 2309.17453, section 3.2;
// TriForce, Sun et al. 2024, arXiv 2404.11912, section 4.3 and its code.)
//
// A text that fits is kept whole. Then the window slides in steps: when the slots are full, all but the sinks and the
// last `recent` tokens go at once, and those that stay get new slots. In between it is an ordinary KvCache of a few
// hundred positions, on which the ordinary forward pass and attention work; StreamingLLM rotates every key at every use
// instead, for the same angles. What a slide needs is kept beside the cache: K before rope and V, as the pass made
// them, in float. So a key of a slot has the bits that a pass would have given it there, after any number of slides;
// turning rounded keys back would have cost no such copy, but a rounding a slide. A window that holds the longest text
// (WindowShape::slides false) is the cache alone.
//
// Invariant: slot s holds text position s, or s + n_dropped() for slots behind the sinks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/cache/kv_cache.h"
#include "runtime/model/model.h"
#include "runtime/pass/forward.h"

namespace slipstream::draft {

struct WindowShape {
    std::int64_t sinks = 16;    // first tokens of the text, never dropped
    std::int64_t recent = 112;  // last tokens that a slide keeps, at least 1
    std::int64_t slots = 240;   // committed tokens in all, at most
    bool slides = true;         // false: no text is longer than `slots`, and nothing is kept for moving them
};

struct WindowLimits {
    std::int64_t max_rows = 1;   // scratch rows of nodes that are not committed
    std::int64_t max_depth = 1;  // positions behind the slots that such nodes may take
};

class WindowKv final : private PassHooks {
public:
    /// Memory is taken once, on the model's device. `exec` is that of the passes. Throws OutOfBudget.
    WindowKv(const Model& model, const WindowShape& shape, const WindowLimits& limits, ExecRef exec);
    WindowKv(const WindowKv&) = delete;
    WindowKv& operator=(const WindowKv&) = delete;

    [[nodiscard]] const WindowShape& shape() const { return shape_; }
    [[nodiscard]] KvCache& cache() { return cache_; }
    [[nodiscard]] const KvCache& cache() const { return cache_; }
    /// Tokens at the text's beginning that are committed or were dropped.
    [[nodiscard]] std::int64_t n_tokens() const { return cache_.n_committed() + n_dropped_; }
    [[nodiscard]] std::int64_t n_dropped() const { return n_dropped_; }
    /// Tokens behind the sinks.
    [[nodiscard]] std::int64_t n_recent() const;

    /// What a pass over `nodes` of cache() must be run with, until the next call.
    [[nodiscard]] PassHooks* hooks(std::span<const NodeId> nodes);
    /// KvCache::commit, with the rows beside it. Every node of `path` was run with hooks().
    void commit(ExecRef exec, std::span<const NodeId> path);
    /// Drops tokens behind the sinks so that the last `n_keep` (0 to n_recent()) stay; those get the slots behind the
    /// sinks. Drops all nodes.
    void slide(ExecRef exec, std::int64_t n_keep);
    /// Drops all behind the sinks (which are full, CHECKed); the next token to be committed stands at text position
    /// `next`, at or behind the sinks.
    void jump(std::int64_t next);
    /// Takes the text back to its first `n_tokens`; where they end among dropped ones only sinks are left.
    void truncate(std::int64_t n_tokens);

private:
    [[nodiscard]] std::byte* raw_row(std::int64_t layer, std::int64_t part, std::int64_t row) const;
    [[nodiscard]] std::size_t raw_plane_bytes() const;
    [[nodiscard]] std::int64_t row_of_slot(std::int64_t slot) const;
    void on_rows(ExecRef exec, std::int64_t layer, const ConstTensorView& k, const ConstTensorView& v) override;
    [[nodiscard]] bool allow_graphs() const override { return true; }
    void place_rows(ExecRef exec, std::int64_t count);

    const Model* model_;
    WindowShape shape_;
    KvCache cache_;
    std::int64_t kv_cols_;
    std::int64_t n_positions_;    // slots, then what nodes may take behind them
    std::int64_t n_raw_rows_;     // of a layer's K, or V: positions, then scratch
    std::int64_t n_dropped_ = 0;  // tokens between the sinks and the rest
    // [n_layers][K|V][positions + max_rows][kv_cols], F32, keys before rope. Slots behind the sinks lie in a ring by
    // their text position, so that a slide moves none of them.
    Buffer raw_;
    Buffer cos_sin_;      // [slots, n_rotated], F32
    Buffer moving_;       // [K|V][piece, kv_cols], F32: rows on their way to new slots
    std::int64_t piece_;  // tokens that move to new slots at a time
    std::vector<NodeId> moved_;
    std::vector<NodeId> pass_nodes_;                 // of the running pass; graphs read it at its place
    std::vector<std::int32_t> from_rows_, to_rows_;  // of a move
};

}  // namespace slipstream::draft
