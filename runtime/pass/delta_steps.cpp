#include "runtime/pass/delta_steps.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace slipstream {

DeltaSteps::DeltaSteps(std::int64_t most_steps) {
    const auto n = static_cast<std::size_t>(most_steps);
    steps_.reserve(n);
    drafts_.reserve(n);
    nodes_.reserve(n);
    visits_.reserve(n);
}

void DeltaSteps::clear() {
    steps_.clear();
    drafts_.clear();
    nodes_.clear();
    n_kept_ = 0;
    n_working_ = 1;
    n_parts_ = 0;
    before_ = 0;
    after_ = 0;
    first_draft_ = 0;
    is_prompt_ = false;
}

// Adds a step after the last one, in working state 0.
void DeltaSteps::add_step(std::int32_t row) {
    steps_.push_back({.row = row, .parent = static_cast<std::int32_t>(std::ssize(steps_)) - 1});
}

void DeltaSteps::add_pending(const RecurrentStates& states) {
    before_ = states.kept();
    for (std::int64_t i = 0; i < states.n_pending(); ++i) add_step(-1 - states.pending_row(i));
}

void DeltaSteps::trace_prompt(const RecurrentStates& states, std::int64_t begin, std::int64_t n) {
    clear();
    add_chain(states, begin, n);
    is_prompt_ = true;
    divide(states);
}

void DeltaSteps::add_chain(const RecurrentStates& states, std::int64_t begin, std::int64_t n) {
    before_ = begin;
    if (begin == states.kept() + states.n_pending()) add_pending(states);
    for (std::int64_t row = 0; row < n; ++row) add_step(static_cast<std::int32_t>(row));
    n_kept_ = std::ssize(steps_);
    after_ = begin + n;
    first_draft_ = n;
}

void DeltaSteps::trace(PassKv& kv, std::span<const NodeId> nodes) {
    const RecurrentStates& states = *kv.states();
    const KvNodes& tree = kv.nodes();
    clear();
    std::int64_t n_certain = 0;
    while (n_certain < std::ssize(nodes) && tree.is_certain(nodes[n_certain])) {
        const NodeId node = nodes[n_certain];
        CHECK(n_certain == 0 || tree.parent(node) == nodes[n_certain - 1], "certain node {} is not below {}", node.row,
              nodes[n_certain - 1].row);
        ++n_certain;
    }
    if (n_certain > 0) {
        add_chain(states, tree.slot(nodes.front()), n_certain);
    } else {
        NodeId above = tree.parent(nodes.front());
        while (above != kCommittedTip && !tree.is_certain(above)) above = tree.parent(above);
        if (above == kCommittedTip) {
            add_pending(states);
        } else {
            before_ = tree.slot(above) + 1;
        }
    }
    if (n_certain == std::ssize(nodes)) return divide(states);
    for (const NodeId node : nodes.subspan(n_certain)) {
        CHECK(!tree.is_certain(node), "certain node {} after a draft node", node.row);
        drafts_.push_back(states.draft_row(tree.draft_index(node)));
    }
    collect_tree(kv, nodes.subspan(n_certain));
    link_tree();
    walk_tree();
    divide(states);
}

// Fills parts_. Call when all steps are there.
void DeltaSteps::divide(const RecurrentStates& states) {
    const std::int64_t end = before_ + n_kept_;
    const std::int64_t checkpoint = n_kept_ > 0 ? states.checkpoint_within(before_, end, first_draft_) : 0;
    const std::int64_t n_first = checkpoint > 0 ? checkpoint - before_ : 0;
    const std::int64_t n_rows = first_draft_ + std::ssize(drafts_);
    std::int64_t n_first_rows = 0;
    for (const DeltaStep& step : std::span(steps_).first(n_first)) n_first_rows += step.row >= 0 ? 1 : 0;
    n_parts_ = 0;
    if (n_first > 0)
        parts_[n_parts_++] = {
            .steps = std::span(steps_).first(n_first), .n_rows = n_first_rows, .n_kept = n_first, .after = checkpoint};
    const std::span<DeltaStep> last = std::span(steps_).subspan(n_first);
    for (DeltaStep& step : last) {
        step.parent = std::max(step.parent - static_cast<std::int32_t>(n_first), -1);
        if (step.row >= 0) step.row -= static_cast<std::int32_t>(n_first_rows);
    }
    parts_[n_parts_++] = {.steps = last,
                          .first_row = n_first_rows,
                          .n_rows = n_rows - n_first_rows,
                          .n_kept = n_kept_ - n_first,
                          .n_working = n_working_,
                          .after = end};
}

// Fills nodes_: the draft nodes of the pass, whose first has row first_draft(), and their draft ancestors.
void DeltaSteps::collect_tree(PassKv& kv, std::span<const NodeId> nodes) {
    const KvNodes& tree = kv.nodes();
    const auto order = [](const Node& a, const Node& b) { return a.node.row < b.node.row; };
    for (std::int64_t i = 0; i < std::ssize(nodes); ++i)
        nodes_.push_back({.node = nodes[i], .row = static_cast<std::int32_t>(first_draft_ + i)});
    std::ranges::sort(nodes_, order);
    const auto index_of = [&](NodeId node) {
        const auto found = std::ranges::lower_bound(nodes_, Node{.node = node}, order);
        return found != nodes_.end() && found->node == node ? static_cast<std::int32_t>(found - nodes_.begin()) : -1;
    };
    for (const NodeId node : nodes) {
        for (NodeId above = tree.parent(node); above != kCommittedTip && !tree.is_certain(above);
             above = tree.parent(above)) {
            if (index_of(above) >= 0) break;
            const Node ancestor{.node = above, .row = -1 - kv.states()->draft_row(tree.draft_index(above))};
            nodes_.insert(std::ranges::upper_bound(nodes_, ancestor, order), ancestor);
        }
    }
    const NodeId below = [&] {  // the parent of the nodes that have no draft parent; the same for all
        NodeId top = nodes_.front().node;
        while (top != kCommittedTip && !tree.is_certain(top)) top = tree.parent(top);
        return top;
    }();
    for (Node& node : nodes_) {
        const NodeId above = tree.parent(node.node);
        node.parent = above == kCommittedTip || tree.is_certain(above) ? -1 : index_of(above);
        CHECK(node.parent >= 0 || above == below, "draft nodes below {} and below {}", above.row, below.row);
        CHECK(n_kept_ == 0 || node.parent >= 0 || (above != kCommittedTip && tree.slot(above) + 1 == after_),
              "draft node {} is not below the last certain one", node.node.row);
    }
}

// Links the children of each node by ascending sizes of their subtrees.
void DeltaSteps::link_tree() {
    for (std::int32_t i = static_cast<std::int32_t>(std::ssize(nodes_)) - 1; i >= 0; --i)
        if (nodes_[i].parent >= 0) nodes_[nodes_[i].parent].size += nodes_[i].size;
    first_root_ = -1;
    for (std::int32_t i = 0; i < std::ssize(nodes_); ++i) {
        std::int32_t* at = nodes_[i].parent >= 0 ? &nodes_[nodes_[i].parent].first_child : &first_root_;
        while (*at >= 0 && nodes_[*at].size <= nodes_[i].size) at = &nodes_[*at].next_child;
        nodes_[i].next_child = *at;
        *at = i;
    }
}

// Appends visits of the children of a node whose state is in working state `state`, the first child last, since visits
// are taken from the end. Only the last child may take that working state.
void DeltaSteps::push_children(std::int32_t first_child, std::int32_t parent_step, std::int32_t state,
                               std::int32_t free) {
    const auto begin = std::ssize(visits_);
    for (std::int32_t child = first_child; child >= 0; child = nodes_[child].next_child) {
        const bool is_last = nodes_[child].next_child < 0;
        visits_.push_back({.node = child,
                           .parent_step = parent_step,
                           .from = state,
                           .to = is_last ? state : free,
                           .free = is_last ? free : free + 1});
    }
    std::reverse(visits_.begin() + begin, visits_.end());
}

void DeltaSteps::walk_tree() {
    visits_.clear();
    push_children(first_root_, static_cast<std::int32_t>(std::ssize(steps_)) - 1, 0, 1);
    while (!visits_.empty()) {
        const Visit visit = visits_.back();
        visits_.pop_back();
        const auto step = static_cast<std::int32_t>(std::ssize(steps_));
        steps_.push_back(
            {.row = nodes_[visit.node].row, .parent = visit.parent_step, .from = visit.from, .to = visit.to});
        n_working_ = std::max<std::int64_t>(n_working_, visit.to + 1);
        push_children(nodes_[visit.node].first_child, step, visit.to, visit.free);
    }
}

}  // namespace slipstream
