// Makes launch plans of attention (attention_plan.h) once per pass instead of once per layer: positions and paths are
// the same in all layers of a pass; only the addresses of KV chunks and rows differ. The latest calls are remembered,
// with copies of their arrays (one copy for all calls that share them: KV segments of a streamed cache). Calls are
// compared by the contents of these arrays, so the caller need not say when a pass begins.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/attention/attention_plan.h"

namespace slipstream::cuda {

class AttentionPlanner {
public:
    /// Returns the plan for a call, valid until the next call of plan(). `card` must be the same in all calls.
    /// Allocates nothing after each remembered plan was used for a call of as many tokens.
    [[nodiscard]] const AttentionPlan& plan(const AttentionArgs& args, const AttentionCard& card);

    /// n_made() returns how many plans were computed, n_found() how many were found among the remembered ones.
    [[nodiscard]] std::uint64_t n_made() const { return n_made_; }
    [[nodiscard]] std::uint64_t n_found() const { return n_found_; }

private:
    struct Arrays {
        std::uint64_t id = 0;  // identifies the contents, which get a new id when they change; 0: unused
        std::vector<std::int32_t> positions, path_begin, path_rows;
        std::uint64_t used = 0;  // number of the latest call that used these arrays
    };
    // All that a plan depends on, and the plan.
    struct Known {
        std::uint64_t arrays = 0;  // id of the arrays; 0: unused
        std::int64_t n_q_heads = 0;
        KvLayout shape;
        std::int64_t n_committed = 0;
        std::int64_t window = 0;
        float softcap = 0.0F;
        std::int64_t first_chunk = 0;
        std::int64_t end_chunk = 0;
        AttentionPlan plan;
        std::uint64_t used = 0;  // number of the latest call that used this plan
    };
    [[nodiscard]] const Arrays& arrays_of(const AttentionArgs& args, std::int64_t n_rows);
    void make_room(Known& known, const AttentionArgs& args) const;
    [[nodiscard]] static bool same(const Known& known, const AttentionArgs& args);

    // Arrays of the latest calls. 8 are enough for the levels of a draft model's tree and the target's pass.
    std::array<Arrays, 8> arrays_;
    // Remembered plans. 64 are enough for the sliding windows between which layers alternate, and for the KV segments
    // of a streamed cache (33 per layer at 128K): the next layer uses the same plans again.
    std::array<Known, 64> known_;
    std::uint64_t n_arrays_ = 0;
    std::int64_t most_tokens_ = 0;
    std::uint64_t n_made_ = 0;
    std::uint64_t n_found_ = 0;
};

}  // namespace slipstream::cuda
