// Second part of TreeBuilder: decides when a model is asked, and about which nodes.
#include <algorithm>

#include "draft/stopwatch.h"
#include "draft/tree/tree_builder.h"

namespace slipstream::draft {

namespace {

// Without a curve of pass times: a node is asked about if its gain is at least this fraction of the best node's.
constexpr float kWorthABatch = 0.05F;
// Longest pause, in trees, after which a model is asked although it does not seem to pay; each such attempt doubles the
// pause, up to this.
constexpr std::int64_t kRarestTry = 384;
// Weight of the probability that a node's children already cover, in the gain of asking a model there.
constexpr float kTablesVote = 0.25F;
// Without a curve of pass times: least expected tokens that a batch must gain.
constexpr double kLeastModelGain = 0.02;

}  // namespace

// Returns what a further node costs, in expected tokens: the greater of two costs. If the budget is full, the score of
// the last node, which it replaces; else 0. And the time by which it lengthens the pass, at most the score of the last
// node of the best tree.
float TreeBuilder::place_cost(const BuildRequest& request) const {
    const float full = std::ssize(taken_) >= request.budget ? at(taken_.back()).score : 0.0F;
    const std::size_t length = best_length(request);
    const auto n = static_cast<std::int64_t>(length);
    if (request.curve == nullptr || n >= request.curve->max_nodes()) return full;
    const double one_more = (request.curve->at(n + 1) - request.curve->at(n)) / request.seconds_per_token;
    const float last = length > 1 ? at(taken_[length - 1]).score : 1.0F;
    return std::max(full, std::min(static_cast<float>(one_more), last));
}

// Selects the nodes to ask about at once, into batch_. Returns their gain together, in expected tokens. The parent of
// each node was asked about before or is in the batch.
double TreeBuilder::choose_batch(std::size_t model, const BuildRequest& request) {
    const ModelSource& source = *models_[model].source;
    const float cost = place_cost(request);
    // Gain of asking the model about the children of a node: what its children do not cover yet, less the cost of a
    // place.
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
    // Nodes past the end of the best tree count too: the model's votes may make them worth their place.
    for (const SearchNode node : taken_) {
        const std::int64_t n = std::ssize(batch_);
        if (n >= room) break;
        const float gain = gain_behind(node);
        const SearchNode parent = parent_of(node);
        // The model was not asked about the parent yet, so another source named the node.
        const bool is_early = parent != SearchNode::None && !is_asked(parent, model);
        if (!(gain > 0.0F) || (is_early && std::ranges::find(batch_, in_arena(parent)) == batch_.end())) continue;
        if (request.curve == nullptr) {
            if (gain < kWorthABatch * most) continue;
        } else if (n > 0) {
            // Each further node must pay for itself now: asked later it might have better data, or not be wanted any
            // more. An early node saves a pass only if the model names it, too, with a probability of about gain /
            // most; that must be worth its cost now.
            const double cost_now = source.expand_seconds(n + 1) - source.expand_seconds(n);
            if (static_cast<double>(gain) * request.seconds_per_token < cost_now) continue;
            if (is_early && static_cast<double>(gain / most) * source.expand_seconds(1) < cost_now) continue;
        }
        batch_.push_back(in_arena(node));
        all += static_cast<double>(gain);
    }
    return all;
}

// Asks a model about one batch of nodes. Returns false, and asks nothing, if the model is not ready or no batch is
// worth its time.
bool TreeBuilder::ask_model(std::size_t which, const BuildRequest& request) {
    Model& model = models_[which];
    if (!model.source->ready(request.text)) return false;
    const double gain = choose_batch(which, request);
    if (batch_.empty()) return false;
    if (request.curve == nullptr) {
        if (gain < kLeastModelGain) return false;
    } else {
        // The cost of asking is only known from asking. So a model that does not seem to pay is asked all the same
        // after a pause, counted in trees, which doubles with each such attempt up to kRarestTry.
        const bool pays = gain * request.seconds_per_token >= model.source->expand_seconds(std::ssize(batch_));
        const bool try_again = model.pause <= 0 && !is_asked(SearchNode::Root, which);
        if (!pays && !try_again) return false;
        model.next_pause = pays ? kTryAgainAfter : std::min(2 * model.next_pause, kRarestTry);
    }
    model.pause = model.next_pause;
    std::ranges::sort(batch_);  // parents come before their children
    {
        const Stopwatch control(counts_[tables_.size() + which].seconds);
        model.source->expand(arena_, request.text, batch_);
    }
    for (const TreeNode arena_node : batch_) {
        const SearchNode node = in_search(arena_node);
        at(node).asked |= 1U << which;
        ask(node, request);
    }
    return true;
}

}  // namespace slipstream::draft
