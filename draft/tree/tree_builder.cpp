#include "draft/tree/tree_builder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

// Children of a node that was taken with so little above the usual last score hardly come in. Leaving them out costs
// few tokens and saves time (Spec-Bench replay, budget 96: at 1.5, 2.5, 4 times that score 2.540, 2.535, 2.529 tokens a
// pass, 70, 58, 50 us a tree): the shorter a pass, the more is left out.
constexpr float kTooNear = 1.5F;
constexpr float kTooNearAtMost = 4.0F;
constexpr double kLongPass = 4e-3;       // seconds: such passes and longer ones pay for looking at every node
constexpr std::size_t kAlwaysAsked = 8;  // of the nodes taken first
constexpr float kLowestScore = 1e-6F;    // what is less likely is not worth a look
constexpr float kLateShare = 0.7F;       // of the usual last score: what is below seldom comes in
constexpr int kMaxModelRounds = 8;
constexpr double kPatience = 0.1;  // of expected tokens: so far below the best a search has gone far enough

std::vector<std::uint16_t> cells_of(std::span<Source* const> sources, const BatchSource* model) {
    std::vector<std::uint16_t> cells;
    for (const Source* source : sources) cells.push_back(source->n_cells());
    if (model != nullptr) cells.push_back(static_cast<std::uint16_t>(model->n_cells() + 1));  // the last: unnamed
    return cells;
}

// Of offers; ties go to the older one.
constexpr auto kLower = [](const auto& a, const auto& b) {
    return a.score != b.score ? a.score < b.score : a.candidate > b.candidate;
};

}  // namespace

TreeBuilder::TreeBuilder(std::vector<Source*> sources, BatchSource* model, std::int64_t vocab)
    : sources_(std::move(sources)),
      model_(model),
      calibration_(cells_of(sources_, model_), model_ != nullptr ? sources_.size() : Calibration::kNone),
      counts_(n_sources()),
      seconds_(n_sources()),
      proposals_(kMaxProposals),
      slots_(static_cast<std::size_t>(vocab)),
      silent_cell_(model_ != nullptr ? model_->n_cells() : 0) {
    has_light_ = std::ranges::any_of(sources_, [](const Source* source) { return source->is_light(); });
}

void TreeBuilder::reset() {
    calibration_.reset();
    usual_cutoff_ = 1e-3F;
    model_gain_ = kModelGain;
    try_again_after_ = kTryAgainAfter;
    n_learnt_ = 0;
    taken_.clear();
    in_tree_.clear();
    nodes_.clear();
}

std::span<TreeBuilder::Candidate> TreeBuilder::candidates_of(std::int32_t node) {
    const Node& at = nodes_[static_cast<std::size_t>(node)];
    return {candidates_.data() + std::max(at.first_candidate, 0), static_cast<std::size_t>(at.n_candidates)};
}

// Under noise a quick crew leaves n-grams of the model out: their words stand only where the model is not asked, and
// keep it from being asked where its own would be worth more.
bool TreeBuilder::is_asked(const Source& source, const BuildRequest& request) const {
    if (asks_all_tables(request.crew)) return true;
    const bool is_spoken_for = model_ != nullptr && request.crew == Crew::Quick && request.noise->present();
    return source.is_light() && !(is_spoken_for && source.is_of_model());
}

void TreeBuilder::begin(const BuildRequest& request) {
    arena_.reset(request.text.back());
    nodes_.assign(1, Node{.score = 1.0F});
    cursors_.clear();
    for (Source* source : sources_)
        cursors_.push_back(is_asked(*source, request) ? source->root(request.text) : kNowhere);
    candidates_.clear();
    inputs_.clear();
    in_tree_.clear();
    n_asked_ = 0;
    noisy_ = request.noise->present();
    const double pass = request.times != nullptr ? request.times->at(1) : kLongPass;
    is_hurried_ = pass < kLongPass;
    // A plain pass is always to be had: what is slower was held up, or guesses in vain, and makes no time cheap.
    tokens_a_second_ = 1.0 / (request.seconds_a_token > 0.0 ? std::min(request.seconds_a_token, pass) : pass);
    too_near_ = usual_cutoff_ * std::clamp(kTooNear * static_cast<float>(kLongPass / pass), kTooNear, kTooNearAtMost);
    ask(0, request);
}

std::int32_t TreeBuilder::make_node(std::int32_t parent, TokenId token) {
    const std::int32_t node = arena_.append(parent, token);
    nodes_.push_back({});
    CHECK(std::ssize(nodes_) == arena_.size(), "node {} of {}", nodes_.size(), arena_.size());
    cursors_.resize(cursors_.size() + sources_.size(), kNowhere);
    return node;
}

void TreeBuilder::offer_children(std::int32_t node, const BuildRequest& request) {
    if (arena_.depth(node) >= request.max_depth) return;
    if (nodes_[static_cast<std::size_t>(node)].score < too_near_ && taken_.size() > kAlwaysAsked) return;
    if (nodes_[static_cast<std::size_t>(node)].first_candidate < 0) ask(node, request);
    const float score = nodes_[static_cast<std::size_t>(node)].score;
    const std::int32_t first = nodes_[static_cast<std::size_t>(node)].first_candidate;
    const std::span<const Candidate> children = candidates_of(node);
    for (std::size_t i = 0; i < children.size(); ++i) {
        const float reached = score * children[i].estimate;
        if (reached < std::max(kLowestScore, 0.1F * usual_cutoff_)) continue;
        const Offer offer{reached, first + static_cast<std::int32_t>(i), node};
        if (reached < late_score_) {
            late_offers_.push_back(offer);
            continue;
        }
        offers_.push_back(offer);
        std::ranges::push_heap(offers_, kLower);
        if (reached >= too_near_) prefetch(node, children[i].token);
    }
}

// The best offer that is left. Most are never taken: those below a score that is seldom reached wait outside the heap
// until it is empty.
std::optional<TreeBuilder::Offer> TreeBuilder::best_offer() {
    if (offers_.empty()) {
        std::swap(offers_, late_offers_);
        std::ranges::make_heap(offers_, kLower);
        late_score_ = 0.0F;
        if (offers_.empty()) return std::nullopt;
    }
    std::ranges::pop_heap(offers_, kLower);
    const Offer best = offers_.back();
    offers_.pop_back();
    return best;
}

// Tables look up what they will be asked, should the child of `node` be taken.
void TreeBuilder::prefetch(std::int32_t node, TokenId token) const {
    const Cursor* cursors = cursors_.data() + static_cast<std::size_t>(node) * sources_.size();
    for (std::size_t i = 0; i < sources_.size(); ++i)
        if (cursors[i] != kNowhere) sources_[i]->prefetch(cursors[i], token);
}

// Takes nodes by falling score until the budget is full, or further ones cannot pay.
void TreeBuilder::search(const BuildRequest& request) {
    for (Node& node : nodes_) node.covered = 0.0F;
    taken_.assign(1, 0);
    expected_.assign(1, 1.0);
    offers_.clear();
    late_offers_.clear();
    late_score_ = kLateShare * usual_cutoff_;
    offer_children(0, request);
    double most = request.times == nullptr ? 0.0 : gain_of(request, 1);
    while (std::ssize(taken_) < request.budget) {
        const std::optional<Offer> best = best_offer();
        if (!best) break;
        const Offer& offer = *best;
        auto& candidate = candidates_[static_cast<std::size_t>(offer.candidate)];
        std::int32_t node = candidate.node;
        if (node < 0) {
            const TokenId token = candidate.token;
            node = candidate.node = make_node(offer.parent, token);
            nodes_[static_cast<std::size_t>(node)].above = offer.candidate;
        }
        nodes_[static_cast<std::size_t>(node)].score = offer.score;
        nodes_[static_cast<std::size_t>(offer.parent)].covered += candidate.estimate;
        taken_.push_back(node);
        expected_.push_back(expected_.back() + static_cast<double>(offer.score));
        if (request.times != nullptr) {
            const double gain = gain_of(request, taken_.size());
            most = std::max(most, gain);
            if (gain < most - kPatience * expected_.back()) break;
        }
        if (std::ssize(taken_) < request.budget) offer_children(node, request);
    }
}

// Tokens that the first `n` taken nodes are expected to commit, less those that their pass's time is worth. Time is
// worth what it brought of late with all that it takes to guess: the most tokens for each second of the pass would
// leave out of account that a tree's drafting is paid for by all of its nodes (the parametric method of Dinkelbach 1967
// for the greatest ratio).
double TreeBuilder::gain_of(const BuildRequest& request, std::size_t n) const {
    return expected_[n - 1] - tokens_a_second_ * request.times->at(static_cast<std::int64_t>(n));
}

// How many of the taken nodes make the best tree.
std::size_t TreeBuilder::best_length(const BuildRequest& request) const {
    if (request.times == nullptr) return taken_.size();
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
    begin(request);
    search(request);
    if (model_ != nullptr && asks_model(request.crew) && request.max_depth > 0 && request.budget > 1)
        for (int round = 0; round < kMaxModelRounds && ask_model(request); ++round) search(request);

    const std::size_t length = best_length(request);
    in_tree_.assign(1, 0);
    tree_place_.assign(nodes_.size(), -1);
    tree_place_[0] = 0;
    for (std::size_t i = 1; i < length; ++i) {
        const std::int32_t node = taken_[i];
        const std::int32_t parent = tree_place_[static_cast<std::size_t>(arena_.parent(node))];
        tree_place_[static_cast<std::size_t>(node)] = tree.append(parent, arena_.token(node));
        in_tree_.push_back(node);
    }
    least_score_ = nodes_[static_cast<std::size_t>(taken_[length - 1])].score;
    if (request.times != nullptr && length > 1) {
        // What a node of the tree cost on an average; the last of them may be a sure one, before a step in time.
        const double more = request.times->at(static_cast<std::int64_t>(length)) - request.times->at(1);
        const double a_node = tokens_a_second_ * more / static_cast<double>(length - 1);
        least_score_ = std::min(least_score_, static_cast<float>(a_node));
    }
    if (length > 1) {
        const float cutoff = std::max(nodes_[static_cast<std::size_t>(taken_[length - 1])].score, kLowestScore);
        usual_cutoff_ += 0.2F * (cutoff - usual_cutoff_);
    }
    ++n_trees_;
    return expected_[length - 1];
}

}  // namespace slipstream::draft
