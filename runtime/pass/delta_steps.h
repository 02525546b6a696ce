// The tokens that a pass takes through recurrent layers, in order: pending ones (RecurrentStates), the certain tokens
// of the pass, then its draft tokens depth first, with ancestors from earlier passes between them. The order is the
// same in all layers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/delta_net.h"
#include "runtime/cache/pass_kv.h"

namespace slipstream {

class DeltaSteps {
public:
    /// Returns the most steps of a pass of `max_tokens` tokens over caches with room for `max_drafts` draft nodes.
    [[nodiscard]] static std::int64_t most(std::int64_t max_tokens, std::int64_t max_drafts) {
        return max_tokens + 2 * max_drafts;
    }
    /// Allocates memory for so many steps.
    explicit DeltaSteps(std::int64_t most_steps);

    /// Sets the steps to those of a pass over `nodes` of `kv`, whose layers are recurrent. Certain nodes come first and
    /// are a chain, from the committed tip or from the last certain node of an earlier pass (CHECKed).
    void trace(PassKv& kv, std::span<const NodeId> nodes);
    /// Sets the steps to those of a chain of `n` certain tokens from position `begin` on.
    void trace_chain(const RecurrentStates& states, std::int64_t begin, std::int64_t n);

    [[nodiscard]] std::span<const DeltaStep> steps() const { return steps_; }
    /// Returns the number of first steps after which the next state is written; 0: it is not.
    [[nodiscard]] std::int64_t n_kept() const { return n_kept_; }
    [[nodiscard]] std::int64_t n_working() const { return n_working_; }
    /// Returns the number of positions in the state before the first step: RecurrentStates::kept(), or what the next
    /// state has.
    [[nodiscard]] std::int64_t before() const { return before_; }
    /// Returns the number of positions in the next state after the pass.
    [[nodiscard]] std::int64_t after() const { return after_; }
    /// Returns the rows of the pass that are draft tokens, whose inputs must be stored: first_draft(), ...; drafts()[i]
    /// is the stored row of row first_draft() + i.
    [[nodiscard]] std::int64_t first_draft() const { return first_draft_; }
    [[nodiscard]] std::span<const std::int32_t> drafts() const { return drafts_; }

private:
    struct Node {
        NodeId node;
        std::int32_t row = 0;     // as DeltaStep::row
        std::int32_t parent = 0;  // in nodes_; -1: below the steps before
        std::int32_t size = 1;    // nodes of its subtree
        std::int32_t first_child = -1;
        std::int32_t next_child = -1;  // of its parent, after it; ascending sizes
    };
    struct Visit {
        std::int32_t node = 0;
        std::int32_t parent_step = 0;
        std::int32_t from = 0;
        std::int32_t to = 0;
        std::int32_t free = 0;  // first working state that no ancestor needs
    };

    void clear();
    void add_step(std::int32_t row);
    void add_pending(const RecurrentStates& states);
    void collect_tree(PassKv& kv, std::span<const NodeId> nodes);
    void link_tree();
    void push_children(std::int32_t first_child, std::int32_t parent_step, std::int32_t state, std::int32_t free);
    void walk_tree();

    std::vector<DeltaStep> steps_;
    std::vector<std::int32_t> drafts_;
    std::vector<Node> nodes_;  // draft nodes of the pass and their draft ancestors; parents first
    std::vector<Visit> visits_;
    std::int32_t first_root_ = -1;  // first of the nodes below the steps before the tree
    std::int64_t n_kept_ = 0;
    std::int64_t n_working_ = 1;
    std::int64_t before_ = 0;
    std::int64_t after_ = 0;
    std::int64_t first_draft_ = 0;
};

}  // namespace slipstream
