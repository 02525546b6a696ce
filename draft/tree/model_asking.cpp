// When a model is asked, and about which nodes: the second part of TreeBuilder.
#include <algorithm>

#include "draft/stopwatch.h"
#include "draft/tree/tree_builder.h"

namespace slipstream::draft {

namespace {

constexpr float kWorthABatch = 0.05F;     // of the best node's gain, to be asked about with it, where time is no matter
constexpr std::int64_t kRarestTry = 384;  // trees without asking a model
constexpr float kTablesVote = 0.25F;      // how far what covers a node makes a model's vote needless
constexpr double kLeastModelGain = 0.02;  // tokens that asking a model must promise where time is no matter

}  // namespace

// What the model's vote behind a node is worth in tokens, beyond what is covered and what a place in the tree costs:
// the last node of the tree goes, or one more takes time, whichever is less.
void TreeBuilder::weigh_asking(std::size_t model, const BuildRequest& request, std::size_t length) {
    float place_cost = 0.0F;
    if (std::ssize(taken_) >= request.budget) place_cost = at(taken_.back()).score;
    if (const auto n = static_cast<std::int64_t>(length); request.curve != nullptr && n < request.curve->max_nodes()) {
        const double one_more = (request.curve->at(n + 1) - request.curve->at(n)) / request.seconds_a_token;
        const float last = length > 1 ? at(taken_[length - 1]).score : 1.0F;
        place_cost = std::max(place_cost, std::min(static_cast<float>(one_more), last));
    }
    worth_.clear();
    // Behind the tree's end a node may become worth its place by what the model says: all that were taken count.
    for (const std::int32_t node : taken_) {
        if ((at(node).asked >> model & 1U) != 0 || arena_.depth(node) >= request.max_depth) continue;
        const float uncovered = std::max(0.0F, 1.0F - kTablesVote * at(node).covered);
        const float gain = at(node).score * uncovered * models_[model].gain - place_cost;
        if (gain > 0.0F) worth_.push_back({gain, node});
    }
}

// The nodes to ask about at once, into batch_; returns what they are worth together, in tokens. A node's parent was
// asked about before it, or goes with it.
double TreeBuilder::choose_batch(std::size_t model, const BuildRequest& request) {
    batch_.clear();
    const ModelSource& source = *models_[model].source;
    float most = 0.0F;
    for (const Worth& worth : worth_) most = std::max(most, worth.gain);
    const std::int64_t room = source.max_nodes() - models_[model].n_asked;
    double gain = 0.0;
    for (const Worth& worth : worth_) {
        const std::int64_t n = std::ssize(batch_);
        if (n >= room) break;
        const std::int32_t parent = arena_.parent(worth.node);
        const bool reachable =
            parent < 0 || (at(parent).asked >> model & 1U) != 0 || std::ranges::find(batch_, parent) != batch_.end();
        if (!reachable) continue;
        // One node more must pay for itself, now: asked later it would know more, and may not be wanted any more.
        const bool pays = request.curve == nullptr
                              ? worth.gain >= kWorthABatch * most
                              : n == 0 || static_cast<double>(worth.gain) * request.seconds_a_token >=
                                              source.expand_seconds(n + 1) - source.expand_seconds(n);
        if (!pays) continue;
        batch_.push_back(worth.node);
        gain += static_cast<double>(worth.gain);
    }
    return gain;
}

// Asks a model about one batch. False where no batch is worth its time.
bool TreeBuilder::ask_model(std::size_t which, const BuildRequest& request) {
    Model& model = models_[which];
    weigh_asking(which, request, best_length(request));
    const double gain = choose_batch(which, request);
    if (batch_.empty()) return false;
    if (request.curve == nullptr) {
        if (gain < kLeastModelGain) return false;
    } else {
        // What it costs is known from asking: after a while without, it is tried again, ever more rarely.
        const bool pays = gain * request.seconds_a_token >= model.source->expand_seconds(std::ssize(batch_));
        const bool try_again = model.n_asked == 0 && n_trees_ - model.last_asked >= model.try_again_after;
        if (!pays && !try_again) return false;
        model.try_again_after = pays ? kTryAgainAfter : std::min(2 * model.try_again_after, kRarestTry);
    }
    std::ranges::sort(batch_);  // parents before children
    {
        const Stopwatch watch(&counts_[tables_.size() + which].seconds, 1);
        model.source->expand(arena_, request.text, batch_);
    }
    model.n_asked += std::ssize(batch_);
    model.last_asked = n_trees_;
    for (const std::int32_t node : batch_) {
        at(node).asked |= 1U << which;
        ask(node, request);
    }
    return true;
}

}  // namespace slipstream::draft
