// Third part of TreeBuilder: learns from a verified tree.
#include <algorithm>
#include <optional>

#include "draft/tree/target_softmax.h"
#include "draft/tree/tree_builder.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr float kWorthNaming = 0.1F;     // least estimate at which a proposal of a model counts as its gain
constexpr float kModelGainRate = 0.05F;  // weight of a new value in the recent mean of a model's gain

}  // namespace

std::uint32_t TreeBuilder::named_by(TreeNode node) {
    std::uint32_t sources = 0;
    if (node == kTreeRoot || node.index >= std::ssize(taken_)) return sources;
    const SearchNode here = taken_[node.index];
    for (const VotedToken& token : votes_.of(at(parent_of(here)).children)) {
        if (token.node != here) continue;
        for (const Calibration::Input& vote : votes_.votes_for(token))
            if (!votes_.is_against(vote)) sources |= 1U << vote.source;
    }
    return sources;
}

void TreeBuilder::learn_node(SearchNode node, TokenId came, const TargetProbabilities* target) {
    const Votes::Range& children = at(node).children;
    votes_.learn(children, came, target);
    float named_hit = 0.0F;
    std::uint32_t offering = 0;  // sources
    for (const VotedToken& token : votes_.of(children)) {
        const bool hit = token.token == came;
        if (hit && token.by_model && token.estimate > kWorthNaming) named_hit = 1.0F;
        if (token.node == SearchNode::None || at(token.node).place == kNoTreeNode) continue;  // not offered
        for (const Calibration::Input& vote : votes_.votes_for(token)) {
            if (votes_.is_against(vote)) continue;
            ++counts_[vote.source].offered;
            offering |= 1U << vote.source;
            if (hit) ++counts_[vote.source].accepted;
        }
    }
    for (std::size_t source = 0; source < counts_.size(); ++source) counts_[source].parents += offering >> source & 1U;
    if (children.model < 0) return;
    float& gain = models_[children.model].gain;
    gain += kModelGainRate * (named_hit - gain);
}

void TreeBuilder::learn(const BuildOutcome& outcome) {
    CHECK(!outcome.accepted.empty() && outcome.accepted.size() == outcome.came.size(), "{} nodes, {} tokens",
          outcome.accepted.size(), outcome.came.size());
    for (std::size_t i = 0; i < outcome.accepted.size(); ++i) {
        const TreeNode node = outcome.accepted[i];
        if (node.index >= std::ssize(taken_))
            break;  // this node and those after it were added to the tree after the search
        // With noise, the token that came says little about what was probable, so the target's probabilities are used.
        std::optional<TargetProbabilities> target;
        if (votes_.noisy() && !outcome.logits.empty())
            target.emplace(outcome.logits, logits_row_of(node), outcome.temperature);
        learn_node(taken_[node.index], outcome.came[i], target ? &*target : nullptr);
    }
}

}  // namespace slipstream::draft
