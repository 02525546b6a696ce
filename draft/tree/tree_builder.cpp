#include "draft/tree/tree_builder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "draft/stopwatch.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr float kFirstCutoff = 1e-3F;  // assumed score of the last node, before the first tree
constexpr float kLowestScore = 1e-6F;  // nodes with a lower score are not searched
// Pruning, relative to cutoff_ (usual score of a tree's last node): asks a source for at most score / (kSeldomReached *
// cutoff_) children, and drops those below kLeastScoreShare * cutoff_. (Spec-Bench replay, budget 96: 2.535 tokens per
// pass with 0.8 and 0 as with 1.6 and 0.1, which take a sixth fewer instructions per tree.)
constexpr float kSeldomReached = 1.6F;
constexpr float kLeastScoreShare = 0.1F;
// Stops the search once the gain is below the best gain by this fraction of the expected tokens, and further nodes
// cannot bring it above the best gain.
constexpr double kLossBeforeStop = 0.1;

std::vector<std::uint16_t> bins_of(std::span<TableSource* const> tables, std::span<ModelSource* const> models) {
    std::vector<std::uint16_t> bins;
    for (const TableSource* source : tables) bins.push_back(source->n_bins());
    for (const ModelSource* source : models) bins.push_back(source->n_bins());
    return bins;
}

// Heap order of offers: by score; ties to the token that was voted on first.
constexpr auto kLower = [](const auto& a, const auto& b) {
    return a.score != b.score ? a.score < b.score : a.token > b.token;
};

std::vector<float> rank_errors_of(std::span<ModelSource* const> models) {
    std::vector<float> rank_errors;
    for (const ModelSource* source : models) rank_errors.push_back(source->rank_error());
    return rank_errors;
}

}  // namespace

TreeBuilder::TreeBuilder(std::vector<TableSource*> tables, std::span<ModelSource* const> models, std::int64_t vocab)
    : tables_(std::move(tables)),
      votes_(bins_of(tables_, models), rank_errors_of(models), vocab),
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
    const SearchNode node = in_search(arena_.append(in_arena(parent), token));
    nodes_.push_back({});
    CHECK(std::ssize(nodes_) == arena_.size(), "node {} of {}", nodes_.size(), arena_.size());
    cursors_.resize(cursors_.size() + tables_.size(), kNowhere);
    return node;
}

// Moves the cursors of all tables to `node`. Called for nodes that are asked about, since most never are; the parent
// was asked about before.
void TreeBuilder::advance_cursors(SearchNode node) {
    const SearchNode parent = parent_of(node);
    if (parent == SearchNode::None) return;
    const Cursor* above = cursors_of(parent);
    Cursor* here = cursors_of(node);
    for (std::size_t i = 0; i < tables_.size(); ++i)
        if (above[i] != kNowhere) here[i] = tables_[i]->advance(above[i], token_of(node));
}

// Collects the proposals of every table for the children of `node`, and those of every model that was asked about it.
void TreeBuilder::ask(SearchNode node, const BuildRequest& request) {
    const Node known = at(node);
    if (!known.children.is_asked()) advance_cursors(node);
    const auto position = static_cast<std::int64_t>(request.text.size()) + depth_of(node);
    // Estimates sum to 1 at most, so the j-th best child scores at most score / j. Fewer are asked for than could reach
    // cutoff_ by this bound, but at least two.
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
        // Without noise, proposals are sorted by probability: drops those that cannot come near cutoff_.
        if (!votes_.noisy())
            while (n > 1 && known.score * room[n - 1].probability < kLeastScoreShare * cutoff_) --n;
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
        if (reached < std::max(kLowestScore, kLeastScoreShare * cutoff_)) continue;
        offers_.push_back({reached, children.child(i), node});
        std::ranges::push_heap(offers_, kLower);
    }
}

// Takes nodes by falling score until the budget is full or further ones cannot pay.
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
            if (gain < most - kLossBeforeStop * expected_.back() && !can_exceed(request, gain, most)) break;
        }
        if (std::ssize(taken_) < request.budget) offer_children(node, request);
    }
}

// Returns the tokens that the first `n` taken nodes are expected to commit, less the tokens that the time of their pass
// is worth. Its greatest value gives the best ratio of tokens to time (parametric method of Dinkelbach 1967).
double TreeBuilder::gain_of(const BuildRequest& request, std::size_t n) const {
    return 1.0 + request.realised_fraction * (expected_[n - 1] - 1.0) -
           request.curve->at(static_cast<std::int64_t>(n)) / request.seconds_per_token;
}

// Returns whether further nodes could bring the gain of the taken nodes, `gain`, above `most`. No later node scores
// more than the last one.
bool TreeBuilder::can_exceed(const BuildRequest& request, double gain, double most) const {
    const double a_node = request.realised_fraction * static_cast<double>(at(taken_.back()).score);  // tokens
    const double growth = request.curve->best_growth(std::ssize(taken_), a_node * request.seconds_per_token,
                                                     std::min(request.budget, request.curve->max_nodes()));
    return gain + growth / request.seconds_per_token > most;
}

// Returns the number of taken nodes, the root included, that make the best tree.
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
    at(SearchNode::Root).place = kTreeRoot;
    for (const SearchNode node : std::span(taken_).subspan(1))
        at(node).place = tree.append(at(parent_of(node)).place, token_of(node));
    if (length > 1) {
        const float last = std::max(at(taken_.back()).score, kLowestScore);
        cutoff_ += 0.2F * (last - cutoff_);
    }
    return expected_[length - 1];
}

}  // namespace slipstream::draft
