// The tokens that a pass takes through recurrent layers, in order: pending ones (RecurrentStates), the certain tokens
// of the pass, then its draft tokens depth first, with ancestors from earlier passes between them. The order is the
// same in all layers.
#pragma once

#include <array>
#include <cstddef>
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
    /// Sets the steps to those of `n` tokens of a prompt that passes layer by layer, from position `begin` on.
    void trace_prompt(const RecurrentStates& states, std::int64_t begin, std::int64_t n);

    /// Consecutive steps that delta_net() takes at once. The second part goes on from the state that the first one has
    /// written, of which a checkpoint is made.
    struct Part {
        std::span<const DeltaStep> steps;  // rows and parents are numbered within the part
        std::int64_t first_row = 0;        // the rows of the pass that are in the part
        std::int64_t n_rows = 0;
        std::int64_t n_kept = 0;     // first steps after which the state is written; 0: it is not
        std::int64_t n_working = 1;  // working states
        std::int64_t after = 0;      // positions in the state that is written
    };
    /// Returns the one or two parts of the pass.
    [[nodiscard]] std::span<const Part> parts() const { return std::span(parts_).first(n_parts_); }
    /// Whether the pass writes a state.
    [[nodiscard]] bool writes() const { return n_kept_ > 0; }
    /// Returns the number of positions in the state before the first step: RecurrentStates::kept(), or what the next or
    /// the prompt's state has.
    [[nodiscard]] std::int64_t before() const { return before_; }
    /// Returns the number of positions in the next state after the pass.
    [[nodiscard]] std::int64_t after() const { return after_; }
    /// Whether the tokens are of a prompt that passes layer by layer, whose states are apart.
    [[nodiscard]] bool is_prompt() const { return is_prompt_; }
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
    void add_chain(const RecurrentStates& states, std::int64_t begin, std::int64_t n);
    void add_step(std::int32_t row);
    void add_pending(const RecurrentStates& states);
    void collect_tree(PassKv& kv, std::span<const NodeId> nodes);
    void link_tree();
    void push_children(std::int32_t first_child, std::int32_t parent_step, std::int32_t state, std::int32_t free);
    void walk_tree();
    void divide(const RecurrentStates& states);

    std::vector<DeltaStep> steps_;
    std::array<Part, 2> parts_;
    std::size_t n_parts_ = 0;
    std::vector<std::int32_t> drafts_;
    std::vector<Node> nodes_;  // draft nodes of the pass and their draft ancestors; parents first
    std::vector<Visit> visits_;
    std::int32_t first_root_ = -1;  // first of the nodes below the steps before the tree
    std::int64_t n_kept_ = 0;
    std::int64_t n_working_ = 1;
    std::int64_t before_ = 0;
    std::int64_t after_ = 0;
    std::int64_t first_draft_ = 0;
    bool is_prompt_ = false;
};

}  // namespace slipstream
