// Plans of attention (attention_plan.h), made once a pass instead of once a layer: positions and paths are the same in
// all its layers, only where chunks and rows lie differs. The last calls are remembered, with copies of their arrays
// (one for all calls that share them: pieces of KV that streams), and compared by contents, so that nobody has to say
// when a pass begins.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/attention/attention_plan.h"

namespace slipstream::cuda {

class AttentionPlanner {
public:
    /// Valid until the next call. Allocates nothing once the kept plans have all met a call of as many tokens.
    [[nodiscard]] const AttentionPlan& plan(const AttentionArgs& args, const AttentionCard& card);

    /// Plans that were made, and that were there.
    [[nodiscard]] std::uint64_t n_made() const { return n_made_; }
    [[nodiscard]] std::uint64_t n_found() const { return n_found_; }

private:
    struct Arrays {
        std::uint64_t id = 0;  // 0: none; other contents, another id
        std::vector<std::int32_t> positions, path_begin, path_rows;
        std::uint64_t used = 0;
    };
    // What a plan follows from.
    struct Known {
        std::uint64_t arrays = 0;  // their id; 0: none
        std::int64_t n_q_heads = 0;
        KvShape shape;
        std::int64_t n_committed = 0;
        std::int64_t window = 0;
        std::int64_t first_chunk = 0;
        std::int64_t end_chunk = 0;
        AttentionPlan plan;
        std::uint64_t used = 0;
    };
    [[nodiscard]] const Arrays& arrays_of(const AttentionArgs& args, std::int64_t n_rows);
    void make_room(Known& known, const AttentionArgs& args) const;
    [[nodiscard]] static bool same(const Known& known, const AttentionArgs& args);

    // Levels of a draft model's tree, and the target's pass.
    std::array<Arrays, 8> arrays_;
    // Windows that layers alternate between, pieces of KV that streams (33 a layer at 128K): the ones of a layer before
    // come again.
    std::array<Known, 64> known_;
    std::uint64_t n_arrays_ = 0;
    std::int64_t most_tokens_ = 0;
    std::uint64_t n_made_ = 0;
    std::uint64_t n_found_ = 0;
};

}  // namespace slipstream::cuda
