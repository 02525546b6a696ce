#include "draft/tree/tree_builder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "draft/stopwatch.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr float kFirstCutoff = 1e-3F;  // score of the last node, before there was a tree
constexpr float kLowestScore = 1e-6F;  // what is less likely is not worth a look
// Of the usual last score: what a child is taken to reach at most, and what no child is heard for. (Spec-Bench replay,
// budget 96: 2.535 tokens a pass with 0.8 and 0 as with 1.6 and 0.1, a sixth fewer instructions a tree.)
constexpr float kSeldomReached = 1.6F;
constexpr float kHopeless = 0.1F;
constexpr double kPatience = 0.1;  // of expected tokens: so far below the best a search has gone far enough

std::vector<std::uint16_t> bins_of(std::span<TableSource* const> tables, std::span<ModelSource* const> models) {
    std::vector<std::uint16_t> bins;
    for (const TableSource* source : tables) bins.push_back(source->n_bins());
    for (const ModelSource* source : models) bins.push_back(source->n_bins());
    return bins;
}

// Of offers; ties go to the older one.
constexpr auto kLower = [](const auto& a, const auto& b) {
    return a.score != b.score ? a.score < b.score : a.token > b.token;
};

}  // namespace

TreeBuilder::TreeBuilder(std::vector<TableSource*> tables, std::span<ModelSource* const> models, std::int64_t vocab)
    : tables_(std::move(tables)),
      votes_(bins_of(tables_, models), models.size(), vocab),
      counts_(tables_.size() + models.size()),
      cutoff_(kFirstCutoff) {
    for (ModelSource* source : models) models_.push_back({.source = source});
}

void TreeBuilder::reset() {
    calibration().reset();
    cutoff_ = kFirstCutoff;
    for (Model& model : models_) model = {.source = model.source};
    taken_.clear();
    nodes_.clear();
}

void TreeBuilder::begin(const BuildRequest& request) {
    arena_.reset(request.text.back());
    nodes_.assign(1, Node{.score = 1.0F});
    cursors_.clear();
    for (TableSource* source : tables_) cursors_.push_back(source->root(request.text));
    for (Model& model : models_) --model.pause;
    votes_.begin(request.noise->present());
    ask(SearchNode::Root, request);
}

SearchNode TreeBuilder::make_node(SearchNode parent, TokenId token) {
    const SearchNode node{arena_.append(in_arena(parent), token)};
    nodes_.push_back({});
    CHECK(std::ssize(nodes_) == arena_.size(), "node {} of {}", nodes_.size(), arena_.size());
    cursors_.resize(cursors_.size() + tables_.size(), kNowhere);
    return node;
}

// Most nodes are never asked about: tables go along only where they are. The parent was asked about before.
void TreeBuilder::advance_cursors(SearchNode node) {
    const SearchNode parent = parent_of(node);
    if (parent == SearchNode::None) return;
    const Cursor* above = cursors_of(parent);
    Cursor* here = cursors_of(node);
    for (std::size_t i = 0; i < tables_.size(); ++i)
        if (above[i] != kNowhere) here[i] = tables_[i]->advance(above[i], token_of(node));
}

// What every table says comes behind `node`, and every model that was asked about it.
void TreeBuilder::ask(SearchNode node, const BuildRequest& request) {
    const Node known = at(node);
    if (!known.children.is_asked()) advance_cursors(node);
    const auto position = static_cast<std::int64_t>(request.text.size()) + depth_of(node);
    // Estimates sum to 1 at most, so the j-th best scores no more than score / j; half of that is taken.
    const auto most = static_cast<std::size_t>(
        std::clamp(known.score / (kSeldomReached * cutoff_), 2.0F, static_cast<float>(kMaxProposals)));
    std::array<Proposal, kMaxProposals> proposals;
    const std::span<Proposal> room = std::span(proposals).first(most);
    votes_.open();
    for (std::size_t i = 0; i < tables_.size(); ++i) {
        const Cursor cursor = cursors_of(node)[i];
        if (cursor == kNowhere) continue;
        const Stopwatch control(counts_[i].seconds);
        std::size_t n = tables_[i]->propose(cursor, position, *request.noise, room);
        // Likeliest first, unless ranked by noise: what cannot come near the usual last score is not even heard.
        if (!votes_.noisy())
            while (n > 1 && known.score * room[n - 1].probability < kHopeless * cutoff_) --n;
        votes_.add(static_cast<std::uint16_t>(i), room.first(n));
    }
    std::int32_t dearest = -1;
    for (std::size_t i = 0; i < models_.size(); ++i) {
        if (!is_asked(node, i)) continue;
        const std::size_t n = models_[i].source->propose(in_arena(node), position, *request.noise, room);
        votes_.add(static_cast<std::uint16_t>(tables_.size() + i), room.first(n));
        dearest = static_cast<std::int32_t>(i);
    }
    at(node).children = votes_.count(known.children, dearest, position, *request.noise);
}

void TreeBuilder::offer_children(SearchNode node, const BuildRequest& request) {
    if (depth_of(node) >= request.max_depth) return;
    if (!at(node).children.is_asked()) ask(node, request);
    const Votes::Range& children = at(node).children;
    for (std::int32_t i = 0; i < children.n; ++i) {
        const float reached = at(node).score * votes_.at(children.child(i)).estimate;
        if (reached < std::max(kLowestScore, kHopeless * cutoff_)) continue;
        offers_.push_back({reached, children.child(i), node});
        std::ranges::push_heap(offers_, kLower);
    }
}

// Takes nodes by falling score until the budget is full, or further ones cannot pay.
void TreeBuilder::search(const BuildRequest& request) {
    for (Node& node : nodes_) node.covered = 0.0F;
    taken_.assign(1, SearchNode::Root);
    expected_.assign(1, 1.0);
    offers_.clear();
    offer_children(SearchNode::Root, request);
    double most = request.curve == nullptr ? 0.0 : gain_of(request, 1);
    while (std::ssize(taken_) < request.budget && !offers_.empty()) {
        std::ranges::pop_heap(offers_, kLower);
        const Offer offer = offers_.back();
        offers_.pop_back();
        VotedToken& token = votes_.at(offer.token);
        if (token.node == SearchNode::None) token.node = make_node(offer.parent, token.token);
        const SearchNode node = token.node;
        at(node).score = offer.score;
        at(offer.parent).covered += token.estimate;
        taken_.push_back(node);
        expected_.push_back(expected_.back() + static_cast<double>(offer.score));
        if (request.curve != nullptr) {
            const double gain = gain_of(request, taken_.size());
            most = std::max(most, gain);
            if (gain < most - kPatience * expected_.back()) break;
        }
        if (std::ssize(taken_) < request.budget) offer_children(node, request);
    }
}

// Tokens that the first `n` taken nodes are expected to commit, less those that their pass's time is worth (the
// parametric method of Dinkelbach 1967 for the greatest ratio).
double TreeBuilder::gain_of(const BuildRequest& request, std::size_t n) const {
    return 1.0 + request.realised_fraction * (expected_[n - 1] - 1.0) -
           request.curve->at(static_cast<std::int64_t>(n)) / request.seconds_per_token;
}

// How many of the taken nodes make the best tree.
std::size_t TreeBuilder::best_length(const BuildRequest& request) const {
    if (request.curve == nullptr) return taken_.size();
    std::size_t best = 1;
    double most = gain_of(request, 1);
    for (std::size_t n = 2; n <= taken_.size(); ++n) {
        const double gain = gain_of(request, n);
        if (gain <= most) continue;
        most = gain;
        best = n;
    }
    return best;
}

double TreeBuilder::grow(TokenTree& tree, const BuildRequest& request) {
    CHECK(tree.size() == 1 && !request.text.empty() && request.noise != nullptr && request.budget >= 1);
    CHECK(request.curve == nullptr || request.seconds_per_token > 0.0, "time is worth nothing");
    begin(request);
    search(request);
    if (request.max_depth > 0 && request.budget > 1)
        for (std::size_t model = 0; model < models_.size(); ++model)
            while (ask_model(model, request)) search(request);

    const std::size_t length = best_length(request);
    taken_.resize(length);
    at(SearchNode::Root).place = 0;
    for (const SearchNode node : std::span(taken_).subspan(1))
        at(node).place = tree.append(at(parent_of(node)).place, token_of(node));
    if (length > 1) {
        const float last = std::max(at(taken_.back()).score, kLowestScore);
        cutoff_ += 0.2F * (last - cutoff_);
    }
    return expected_[length - 1];
}

}  // namespace slipstream::draft
