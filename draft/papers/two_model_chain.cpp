#include "draft/papers/two_model_chain.h"

#include <algorithm>
#include <array>

#include "draft/stopwatch.h"
#include "kernels/base/noise.h"

namespace slipstream::draft {

// Returns the next uniform number in (0, 1) for this tree. The noise stream is one of its own: numbers shared with the
// target's verification, or with draws for it, would distort the distribution.
double TwoModelChain::uniform() {
    return noise_uniform(seed_, n_text_, n_uniform_++, NoiseStream::Hierarchy);
}

// Draws up to `n` tokens after the tip with the lower model, into ahead_.
void TwoModelChain::draw_ahead(const ShapeRequest& request, std::int64_t n, ModelSource& lower) {
    ahead_.clear();
    TreeNode node = tip_;
    for (std::int64_t i = 0; i < n && n_seen_by_lower_ + std::ssize(unseen_by_lower_) <= lower.max_nodes(); ++i) {
        lower.expand(arena_, request.text, unseen_by_lower_);
        n_seen_by_lower_ += std::ssize(unseen_by_lower_);
        const std::span<const Candidate> q = lower.distribution(node);
        Ahead& drawn = ahead_.emplace_back();
        drawn.q.assign(q.begin(), q.end());
        // With no draws to verify, decide() draws from the whole distribution.
        node = arena_.add(node, rule_.decide(drawn.q, {}, [this](std::uint32_t) { return uniform(); }));
        drawn.node = node;
        unseen_by_lower_.assign(1, node);
        unseen_by_upper_.push_back(node);
    }
}

TwoModelChain::Counts TwoModelChain::propose(TokenTree& tree, const ShapeRequest& request, std::int64_t gamma,
                                             ModelSource& lower, ModelSource& upper, DrawnTree& drawn) {
    Counts counts;
    const std::int64_t length = std::min({gamma, request.budget - 1, request.max_depth});
    n_text_ = std::ssize(request.text);
    n_uniform_ = 0;
    arena_.reset(request.text.back());
    tip_ = kTreeRoot;
    unseen_by_lower_.assign(1, kTreeRoot);
    unseen_by_upper_.assign(1, kTreeRoot);
    n_seen_by_lower_ = n_seen_by_upper_ = 0;
    TreeNode end = kTreeRoot;  // last node of the chain in `tree`
    while (tree.size() <= length) {
        {
            const Stopwatch control(counts.seconds);
            draw_ahead(request, std::min(kAhead, length + 1 - tree.size()), lower);
        }
        if (n_seen_by_upper_ + std::ssize(unseen_by_upper_) > upper.max_nodes()) return counts;
        upper.expand(arena_, request.text, unseen_by_upper_);
        n_seen_by_upper_ += std::ssize(unseen_by_upper_);
        // Verifies what was drawn ahead, then adds one token of the upper model's own.
        bool agreed = true;
        for (std::size_t i = 0; i <= ahead_.size() && agreed && tree.size() <= length; ++i) {
            const std::span<const Candidate> p = upper.distribution(tip_);
            p_.assign(p.begin(), p.end());
            DrawnChildren children;
            std::array<TokenId, 1> draw{};
            if (i < ahead_.size()) {
                draw[0] = arena_.token(ahead_[i].node);
                children = {.rule = DrawRule::WithoutReplacement, .q = ahead_[i].q, .draws = draw};
            }
            const TokenId token = rule_.decide(p_, children, [this](std::uint32_t) { return uniform(); });
            end = drawn.add_drawn(tree, end, p_, token);
            agreed = i < ahead_.size() && token == draw[0];
            if (i < ahead_.size()) ++counts.offered;
            if (agreed) ++counts.accepted;
            if (!agreed && i < ahead_.size())
                unseen_by_lower_.clear();  // the lower model's nodes are on a path that
                                           // was rejected
            tip_ = agreed ? ahead_[i].node : arena_.add(tip_, token);
        }
        if (!agreed) {
            unseen_by_lower_.push_back(tip_);
            unseen_by_upper_.assign(1, tip_);
        } else {
            return counts;  // the chain has its full length
        }
    }
    return counts;
}

}  // namespace slipstream::draft
