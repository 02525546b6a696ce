// What a tree's walk teaches, and whose guesses it went along: the fourth part of TreeBuilder.
#include <algorithm>
#include <optional>

#include "draft/tree/log_odds.h"
#include "draft/tree/tree_builder.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr float kWorthNaming = 0.1F;  // of an estimate, to count for what a draft model brings
constexpr float kModelGainRate = 0.05F;
// Where passes are short, the target's probabilities (an exponential a token of the vocabulary) cost more than those of
// later trees teach.
constexpr std::int64_t kYoungTrees = 16;
constexpr std::int64_t kTaughtOneIn = 8;  // of later trees

}  // namespace

std::span<const std::int32_t> TreeBuilder::expanded_path(std::span<const std::int32_t> accepted) {
    path_.clear();
    for (const std::int32_t node : accepted) {
        if (node >= std::ssize(in_tree_)) break;
        path_.push_back(in_tree_[static_cast<std::size_t>(node)]);
    }
    return path_;
}

std::vector<Calibration::Input> TreeBuilder::words_for(std::int32_t node) const {
    const std::int32_t above = nodes_[static_cast<std::size_t>(in_tree_[static_cast<std::size_t>(node)])].above;
    if (above < 0) return {};
    const Candidate& candidate = candidates_[static_cast<std::size_t>(above)];
    std::vector<Calibration::Input> words(inputs_.begin() + candidate.first_input,
                                          inputs_.begin() + candidate.first_input + candidate.n_inputs);
    std::erase_if(words, [this](const Calibration::Input& input) { return is_silence(input); });
    return words;
}

// With noise, what came says little about what was likely; the target's own probabilities say it all. `target`: of the
// node, or null.
void TreeBuilder::learn_node(std::int32_t node, TokenId came, const RowTarget* target) {
    const bool by_model = nodes_[static_cast<std::size_t>(node)].asked_model;
    float named_hit = 0.0F;
    for (const Candidate& candidate : candidates_of(node)) {
        const float hit = candidate.token == came ? 1.0F : 0.0F;
        if (candidate.by_model && candidate.estimate > kWorthNaming) named_hit += hit;
        const std::span<const Calibration::Input> words = words_of(candidate);
        const std::span<const Calibration::Input> counted = words_that_count(candidate);
        if (!noisy_) {
            calibration_.learn(counted, candidate.merged, hit);
        } else {
            if (target != nullptr) {
                const float truth = target->probability(candidate.token);
                calibration_.learn(counted, candidate.merged, truth);
                calibration_.learn_words(words.first(words.size() - counted.size()), truth);
            }
            if (candidate.reckoned > 0.0F)
                calibration_.learn_estimate(candidate.merged, candidate.reckoned, by_model, hit);
        }
        if (candidate.node < 0 || tree_place_[static_cast<std::size_t>(candidate.node)] < 0) continue;  // not offered
        for (const Calibration::Input& input : words) {
            if (is_silence(input)) continue;
            ++counts_[input.source].offered;
            if (hit > 0.0F) ++counts_[input.source].accepted;
        }
    }
    if (by_model) model_gain_ += kModelGainRate * (named_hit - model_gain_);
}

// How much of what tables say of a candidate the light ones would have said alone: the surest of them, for what they
// are worth together is learnt of trees of theirs only.
float TreeBuilder::light_part(const Candidate& candidate) const {
    const std::span<const Calibration::Input> words = words_of(candidate);
    const auto by_tables = std::ranges::find(words, sources_.size(), &Calibration::Input::source) - words.begin();
    float surest = 0.0F;
    for (const Calibration::Input& word : words.first(static_cast<std::size_t>(by_tables)))
        if (sources_[word.source]->is_light()) surest = std::max(surest, logistic(word.log_odds));
    if (surest == 0.0F) return 0.0F;
    return std::min(1.0F, surest / calibration_.merge(words.first(static_cast<std::size_t>(by_tables))));
}

// How far each crew alone would have come along the walk: as far as what it says alone scores no less than a node that
// is worth its time. Where tables made a model's word needless and light ones do not, it would have been asked.
WalkShares TreeBuilder::shares_of(std::span<const std::int32_t> accepted) const {
    WalkShares shares{.tokens = static_cast<double>(accepted.size())};
    if (model_ == nullptr) shares.by_quick = 0.0;
    if (!has_light_) shares.by_light = 0.0;
    if (in_tree_.empty()) return shares;
    float by_tables = 1.0F;
    float by_light = 1.0F;
    float by_quick = 1.0F;
    double quick_comes = 1.0;  // probability that the quick crew came as far
    for (const std::int32_t node : accepted.subspan(1)) {
        if (node >= std::ssize(in_tree_)) break;
        const std::int32_t at = in_tree_[static_cast<std::size_t>(node)];
        const std::int32_t above = nodes_[static_cast<std::size_t>(at)].above;
        const Candidate& candidate = candidates_[static_cast<std::size_t>(above)];
        const float light = candidate.by_tables * light_part(candidate);
        by_tables *= candidate.by_tables;
        by_light *= light;
        shares.by_tables += by_tables >= least_score_ ? 1.0 : 0.0;
        if (has_light_) shares.by_light += by_light >= least_score_ ? 1.0 : 0.0;
        if (model_ == nullptr) continue;
        if (nodes_[static_cast<std::size_t>(arena_.parent(at))].asked_model) {
            const float its_part = std::min(1.0F, logistic(words_of(candidate).back().log_odds) / candidate.merged);
            const float by_model = candidate.by_model ? candidate.estimate * its_part : 0.0F;
            by_quick *= noisy_ ? by_model : std::max(light, by_model);
            if (by_quick < least_score_) quick_comes = 0.0;
        } else if (by_quick * light >= least_score_) {
            by_quick *= light;
        } else {
            shares.model_seconds += quick_comes * model_->expand_seconds(1);
            quick_comes *= std::clamp(static_cast<double>(model_gain_), 0.0, 1.0);
        }
        shares.by_quick += quick_comes;
    }
    return shares;
}

WalkShares TreeBuilder::learn(const BuildOutcome& outcome) {
    CHECK(!outcome.accepted.empty() && outcome.accepted.size() == outcome.came.size(), "{} nodes, {} tokens",
          outcome.accepted.size(), outcome.came.size());
    const bool is_taught =
        noisy_ && !outcome.logits.empty() && (!is_hurried_ || n_learnt_ < kYoungTrees || n_learnt_ % kTaughtOneIn == 0);
    ++n_learnt_;
    for (std::size_t i = 0; i < outcome.accepted.size(); ++i) {
        const std::int32_t node = outcome.accepted[i];
        if (node >= std::ssize(in_tree_)) break;  // hung under the tree by others
        std::optional<RowTarget> target;
        if (is_taught) target.emplace(outcome.logits, node, outcome.temperature);
        learn_node(in_tree_[static_cast<std::size_t>(node)], outcome.came[i], target ? &*target : nullptr);
    }
    return shares_of(outcome.accepted);
}

}  // namespace slipstream::draft
