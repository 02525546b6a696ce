// When a draft model is asked, and about which nodes: the third part of TreeBuilder.
#include <algorithm>

#include "draft/stopwatch.h"
#include "draft/tree/tree_builder.h"

namespace slipstream::draft {

namespace {

constexpr std::int64_t kMaxBatch = 16;     // nodes that a draft model is asked about at once
constexpr float kWorthATimedBatch = 0.5F;  // of the best node's gain, to be asked about with it, where time counts
constexpr float kWorthABatch = 0.05F;      // the same where it does not
constexpr std::int64_t kRarestTry = 384;   // trees without asking a draft model
constexpr float kTablesWord = 0.25F;       // how far tables that cover a node make a model's word needless, under noise
constexpr double kLeastModelGain = 0.02;   // tokens that asking a draft model must promise where time is no matter

}  // namespace

// What the draft model's word behind a node is worth in tokens, beyond what tables cover and what a place in the tree
// costs: the last node of the tree goes, or one more takes time, whichever is less.
void TreeBuilder::weigh_asking(const BuildRequest& request, std::size_t length) {
    float place_cost = 0.0F;
    if (std::ssize(taken_) >= request.budget) place_cost = nodes_[static_cast<std::size_t>(taken_.back())].score;
    if (const auto n = static_cast<std::int64_t>(length); request.times != nullptr && n < request.times->max_nodes()) {
        const double one_more = tokens_a_second_ * (request.times->at(n + 1) - request.times->at(n));
        const float last = length > 1 ? nodes_[static_cast<std::size_t>(taken_[length - 1])].score : 1.0F;
        place_cost = std::max(place_cost, std::min(static_cast<float>(one_more), last));
    }
    worth_.clear();
    // Behind the tree's end a node may become worth its place by what the model says: all that were taken count.
    for (const std::int32_t node : taken_) {
        const Node& at = nodes_[static_cast<std::size_t>(node)];
        if (at.asked_model || arena_.depth(node) >= request.max_depth) continue;
        const float uncovered = std::max(0.0F, 1.0F - (noisy_ ? kTablesWord : 1.0F) * at.covered);
        const float gain = at.score * uncovered * model_gain_ - place_cost;
        if (gain > 0.0F) worth_.push_back({gain, node});
    }
}

// The nodes to ask about at once, into batch_; returns what they are worth together, in tokens. A node's parent was
// asked about before it, or goes with it.
double TreeBuilder::choose_batch(const BuildRequest& request, double seconds_a_token) {
    batch_.clear();
    float most = 0.0F;
    for (const Worth& worth : worth_) most = std::max(most, worth.gain);
    const float least = most * (request.times == nullptr ? kWorthABatch : kWorthATimedBatch);
    const std::int64_t room = std::min(kMaxBatch, model_->max_nodes() - n_asked_);
    double gain = 0.0;
    for (const Worth& worth : worth_) {
        const std::int64_t n = std::ssize(batch_);
        if (n >= room) break;
        const std::int32_t parent = arena_.parent(worth.node);
        const bool reachable = parent < 0 || nodes_[static_cast<std::size_t>(parent)].asked_model ||
                               std::ranges::find(batch_, parent) != batch_.end();
        if (worth.gain < least || !reachable) continue;
        // One node more must pay for itself.
        if (request.times != nullptr && n > 0 &&
            static_cast<double>(worth.gain) * seconds_a_token <
                model_->expand_seconds(n + 1) - model_->expand_seconds(n))
            break;
        batch_.push_back(worth.node);
        gain += static_cast<double>(worth.gain);
    }
    return gain;
}

// Asks the draft model about one batch. False where no batch is worth its time.
bool TreeBuilder::ask_model(const BuildRequest& request) {
    const std::size_t length = best_length(request);
    const double seconds_a_token = 1.0 / tokens_a_second_;
    weigh_asking(request, length);
    const double gain = choose_batch(request, seconds_a_token);
    if (batch_.empty()) return false;
    if (request.times == nullptr) {
        if (gain < kLeastModelGain) return false;
    } else {
        // What it costs is known from asking: after a while without, it is tried again, ever more rarely.
        const bool pays = gain * seconds_a_token >= model_->expand_seconds(std::ssize(batch_));
        const bool try_again = n_asked_ == 0 && n_trees_ - last_asked_ >= try_again_after_;
        if (!pays && !try_again) return false;
        try_again_after_ = pays ? kTryAgainAfter : std::min(2 * try_again_after_, kRarestTry);
    }
    std::ranges::sort(batch_);  // parents before children
    {
        const Stopwatch watch(&seconds_.back(), 1);
        model_->expand(arena_, request.text, batch_);
    }
    n_asked_ += std::ssize(batch_);
    last_asked_ = n_trees_;
    for (const std::int32_t node : batch_) {
        nodes_[static_cast<std::size_t>(node)].asked_model = true;
        ask(node, request);
    }
    return true;
}

}  // namespace slipstream::draft
