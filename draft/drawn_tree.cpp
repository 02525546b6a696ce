#include "draft/drawn_tree.h"

#include <numeric>

#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

// Limits of a node's depth and of the number of a draw below one node. rejection_uniform() is asked for a draw by an
// index of 32 bits: the highest bit set, then 15 bits of depth, then 16 bits of the draw's number.
constexpr std::int64_t kMaxDepth = std::int64_t{1} << 15;
constexpr std::int64_t kMaxDraws = std::int64_t{1} << 16;

std::uint32_t draw_index(std::int64_t depth, std::int64_t draw) {
    return std::uint32_t{1} << 31 | static_cast<std::uint32_t>(depth * kMaxDraws + draw);
}

}  // namespace

void DrawnTree::reset(std::int64_t n_text, std::int64_t budget) {
    CHECK(n_text >= 1 && budget >= 1, "{} tokens, budget {}", n_text, budget);
    n_text_ = n_text;
    budget_ = budget;
    entries_.clear();
    q_.clear();
    draws_.clear();
}

std::span<const TokenId> DrawnTree::draw_children(TokenTree& tree, TreeNode node, std::span<const Candidate> q,
                                                  DrawRule rule, std::int64_t n) {
    CHECK(tree.has(node) && n >= 0 && n < kMaxDraws && tree.depth(node) < kMaxDepth, "{} draws below node {} of {}", n,
          node.index, tree.size());
    Entry& entry = begin_entry(node, q, rule);
    weights_.clear();
    for (const Candidate& candidate : q) weights_.push_back(candidate.probability);

    const std::int64_t depth = tree.depth(node);
    for (std::int64_t i = 0; i < n; ++i) {
        const std::size_t drawn = draw_one(q, rejection_uniform(seed_, n_text_ + depth, draw_index(depth, i)));
        if (drawn == q.size()) break;  // no candidate is left
        draws_.push_back(q[drawn].id);
        if (tree.size() < budget_) tree.add(node, q[drawn].id);
        if (rule == DrawRule::WithoutReplacement) weights_[drawn] = 0.0;
    }
    entry.n_draws = draws_.size() - entry.draws_begin;
    return std::span(draws_).subspan(entry.draws_begin);
}

DrawnTree::Entry& DrawnTree::begin_entry(TreeNode node, std::span<const Candidate> q, DrawRule rule) {
    const auto at = static_cast<std::size_t>(node.index);
    if (entries_.size() <= at) entries_.resize(at + 1);
    CHECK(entries_[at].n_draws == 0, "node {} is drawn from twice", node.index);
    entries_[at] = {.rule = rule, .q_begin = q_.size(), .n_q = q.size(), .draws_begin = draws_.size()};
    q_.insert(q_.end(), q.begin(), q.end());
    return entries_[at];
}

TreeNode DrawnTree::add_drawn(TokenTree& tree, TreeNode node, std::span<const Candidate> q, TokenId token) {
    CHECK(tree.has(node) && tree.size() < budget_, "below node {} of {}", node.index, tree.size());
    begin_entry(node, q, DrawRule::WithoutReplacement).n_draws = 1;
    draws_.push_back(token);
    return tree.add(node, token);
}

// Draws a candidate of `q` in proportion to weights_. `uniform`: a number in (0, 1). Returns the candidate's index in
// `q`, or q.size() if all weights are 0.
std::size_t DrawnTree::draw_one(std::span<const Candidate> q, double uniform) const {
    double missing = uniform * std::accumulate(weights_.begin(), weights_.end(), 0.0);
    std::size_t last = q.size();
    for (std::size_t i = 0; i < q.size(); ++i) {
        if (!(weights_[i] > 0.0)) continue;
        last = i;
        if (missing < weights_[i]) break;
        missing -= weights_[i];
    }
    return last;
}

DrawnChildren DrawnTree::drawn(TreeNode node) const {
    CHECK(node.index >= 0, "node {}", node.index);
    const auto at = static_cast<std::size_t>(node.index);
    if (at >= entries_.size()) return {};
    const Entry& entry = entries_[at];
    return {.rule = entry.rule,
            .q = std::span(q_).subspan(entry.q_begin, entry.n_q),
            .draws = std::span(draws_).subspan(entry.draws_begin, entry.n_draws)};
}

}  // namespace slipstream::draft
