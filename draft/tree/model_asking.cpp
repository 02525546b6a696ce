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

// Tokens that a place in the tree is worth: the last node of the tree goes, or one more takes time, whichever is less.
float TreeBuilder::place_cost(const BuildRequest& request) const {
    const float full = std::ssize(taken_) >= request.budget ? at(taken_.back()).score : 0.0F;
    const std::size_t length = best_length(request);
    const auto n = static_cast<std::int64_t>(length);
    if (request.curve == nullptr || n >= request.curve->max_nodes()) return full;
    const double one_more = (request.curve->at(n + 1) - request.curve->at(n)) / request.seconds_per_token;
    const float last = length > 1 ? at(taken_[length - 1]).score : 1.0F;
    return std::max(full, std::min(static_cast<float>(one_more), last));
}

// The nodes to ask about at once, into batch_; returns what they are worth together, in tokens. A node's parent was
// asked about before it, or goes with it.
double TreeBuilder::choose_batch(std::size_t model, const BuildRequest& request) {
    const ModelSource& source = *models_[model].source;
    const float cost = place_cost(request);
    // What the model's vote behind a node brings, beyond what is covered and what a place in the tree costs.
    const auto gain_behind = [&](SearchNode node) {
        if (is_asked(node, model) || depth_of(node) >= request.max_depth) return 0.0F;
        const float uncovered = std::max(0.0F, 1.0F - kTablesVote * at(node).covered);
        return at(node).score * uncovered * models_[model].gain - cost;
    };
    const auto is_asked_about = [&](const Node& node) { return (node.asked >> model & 1U) != 0; };
    const std::int64_t room = source.max_nodes() - std::ranges::count_if(nodes_, is_asked_about);
    float most = 0.0F;
    for (const SearchNode node : taken_) most = std::max(most, gain_behind(node));
    batch_.clear();
    double all = 0.0;
    // Behind the tree's end a node may become worth its place by what the model says: all that were taken count.
    for (const SearchNode node : taken_) {
        const std::int64_t n = std::ssize(batch_);
        if (n >= room) break;
        const float gain = gain_behind(node);
        const SearchNode parent = parent_of(node);
        const bool reachable = parent == SearchNode::None || is_asked(parent, model) ||
                               std::ranges::find(batch_, in_arena(parent)) != batch_.end();
        if (!(gain > 0.0F) || !reachable) continue;
        // One node more must pay for itself, now: asked later it would know more, and may not be wanted any more.
        const bool pays = request.curve == nullptr
                              ? gain >= kWorthABatch * most
                              : n == 0 || static_cast<double>(gain) * request.seconds_per_token >=
                                              source.expand_seconds(n + 1) - source.expand_seconds(n);
        if (!pays) continue;
        batch_.push_back(in_arena(node));
        all += static_cast<double>(gain);
    }
    return all;
}

// Asks a model about one batch. False where no batch is worth its time.
bool TreeBuilder::ask_model(std::size_t which, const BuildRequest& request) {
    Model& model = models_[which];
    if (!model.source->ready(request.text)) return false;
    const double gain = choose_batch(which, request);
    if (batch_.empty()) return false;
    if (request.curve == nullptr) {
        if (gain < kLeastModelGain) return false;
    } else {
        // What it costs is known from asking: after a while without, it is tried again, ever more rarely.
        const bool pays = gain * request.seconds_per_token >= model.source->expand_seconds(std::ssize(batch_));
        const bool try_again = model.pause <= 0 && !is_asked(SearchNode::Root, which);
        if (!pays && !try_again) return false;
        model.next_pause = pays ? kTryAgainAfter : std::min(2 * model.next_pause, kRarestTry);
    }
    model.pause = model.next_pause;
    std::ranges::sort(batch_);  // parents before children
    {
        const Stopwatch control(counts_[tables_.size() + which].seconds);
        model.source->expand(arena_, request.text, batch_);
    }
    for (const std::int32_t index : batch_) {
        const SearchNode node{index};
        at(node).asked |= 1U << which;
        ask(node, request);
    }
    return true;
}

}  // namespace slipstream::draft
