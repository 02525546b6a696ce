// What a tree's walk teaches: the third part of TreeBuilder.
#include <algorithm>
#include <optional>

#include "draft/tree/soft_target.h"
#include "draft/tree/tree_builder.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr float kWorthNaming = 0.1F;  // of an estimate, to count for what a model brings
constexpr float kModelGainRate = 0.05F;

}  // namespace

std::span<const std::int32_t> TreeBuilder::expanded_path(std::span<const std::int32_t> accepted) {
    path_.clear();
    for (const std::int32_t node : accepted) {
        if (node >= std::ssize(in_tree_)) break;
        path_.push_back(in_tree_[static_cast<std::size_t>(node)]);
    }
    return path_;
}

std::vector<Calibration::Input> TreeBuilder::votes_for(std::int32_t node) const {
    const std::int32_t above = at(in_tree_[static_cast<std::size_t>(node)]).above;
    if (above < 0) return {};
    const std::span<const Calibration::Input> all = votes_.votes_for(votes_.at(above));
    std::vector<Calibration::Input> votes(all.begin(), all.end());
    std::erase_if(votes, [this](const Calibration::Input& vote) { return votes_.is_against(vote); });
    return votes;
}

void TreeBuilder::learn_node(std::int32_t node, TokenId came, std::span<const float> truth) {
    const Votes::Range& children = at(node).children;
    votes_.learn(children, came, truth);
    float named_hit = 0.0F;
    for (const VotedToken& token : votes_.of(children)) {
        const bool hit = token.token == came;
        if (hit && token.by_model && token.estimate > kWorthNaming) named_hit = 1.0F;
        if (token.node < 0 || at(token.node).place < 0) continue;  // not offered
        for (const Calibration::Input& vote : votes_.votes_for(token)) {
            if (votes_.is_against(vote)) continue;
            ++counts_[vote.source].offered;
            if (hit) ++counts_[vote.source].accepted;
        }
    }
    if (children.model < 0) return;
    float& gain = models_[static_cast<std::size_t>(children.model)].gain;
    gain += kModelGainRate * (named_hit - gain);
}

void TreeBuilder::learn(const BuildOutcome& outcome) {
    CHECK(!outcome.accepted.empty() && outcome.accepted.size() == outcome.came.size(), "{} nodes, {} tokens",
          outcome.accepted.size(), outcome.came.size());
    for (std::size_t i = 0; i < outcome.accepted.size(); ++i) {
        const std::int32_t row = outcome.accepted[i];
        if (row >= std::ssize(in_tree_)) break;  // hung under the tree by others
        const std::int32_t node = in_tree_[static_cast<std::size_t>(row)];
        truth_.clear();
        if (noisy_ && !outcome.logits.empty()) {
            // With noise, what came says little about what was likely; the target's own probabilities say it all.
            const RowTarget target(outcome.logits, row, outcome.temperature);
            for (const VotedToken& token : votes_.of(at(node).children))
                truth_.push_back(target.probability(token.token));
        }
        learn_node(node, outcome.came[i], truth_);
    }
}

}  // namespace slipstream::draft
