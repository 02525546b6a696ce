#include "draft/replay.h"

#include <algorithm>

#include "draft/stopwatch.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

// Follows `ahead` (not empty) down the tree. Writes the accepted nodes to `accepted`: node 0 first, one node for each
// token that is committed.
void follow(const TokenTree& tree, std::span<const TokenId> ahead, std::vector<TreeNode>& accepted) {
    accepted.assign(1, kTreeRoot);
    while (accepted.size() < ahead.size()) {
        const auto child = tree.child(accepted.back(), ahead[accepted.size() - 1]);
        if (!child) return;
        accepted.push_back(*child);
    }
}

}  // namespace

double ReplayFigures::mean_accepted_tokens() const {
    return passes > 0 ? static_cast<double>(tokens) / static_cast<double>(passes) : 0.0;
}

ReplayFigures& ReplayFigures::operator+=(const ReplayFigures& other) {
    passes += other.passes;
    tokens += other.tokens;
    nodes += other.nodes;
    propose_seconds += other.propose_seconds;
    observe_seconds += other.observe_seconds;
    accept_lengths.insert(accept_lengths.end(), other.accept_lengths.begin(), other.accept_lengths.end());
    return *this;
}

ReplayFigures replay(Proposer& proposer, std::span<const RecordedTurn> turns, std::int64_t budget) {
    CHECK(budget >= 1, "budget {}", budget);
    ReplayFigures figures;
    const auto observe = [&](const Observation& observation) {
        const Stopwatch control(figures.observe_seconds);
        proposer.observe(observation);
    };
    std::vector<TokenId> text;
    TokenTree tree;
    tree.reserve(budget);
    std::vector<TreeNode> accepted;
    observe({.text = text, .n_new = 0});
    for (const RecordedTurn& turn : turns) {
        CHECK(!text.empty() || !turn.prompt.empty(), "a sequence that starts empty");
        text.insert(text.end(), turn.prompt.begin(), turn.prompt.end());
        if (!turn.prompt.empty()) observe({.text = text, .n_new = static_cast<std::int64_t>(turn.prompt.size())});
        for (std::span<const TokenId> ahead(turn.answer); !ahead.empty(); ahead = ahead.subspan(accepted.size())) {
            {
                const Stopwatch control(figures.propose_seconds);
                tree.reset(text.back());
                // Only the budget bounds the depth: the rest of the answer must not be known in advance.
                proposer.propose(tree, {.budget = budget, .max_depth = budget - 1, .text = text});
            }
            CHECK(tree.size() <= budget, "{} nodes proposed, budget {}", tree.size(), budget);
            follow(tree, ahead, accepted);
            const auto n_new = static_cast<std::int64_t>(accepted.size());
            text.insert(text.end(), ahead.begin(), ahead.begin() + n_new);
            ++figures.passes;
            figures.tokens += n_new;
            figures.nodes += tree.size();
            figures.accept_lengths.push_back(n_new);
            observe({.text = text, .n_new = n_new, .tree = &tree, .accepted = accepted});
        }
    }
    return figures;
}

}  // namespace slipstream::draft
