#include "draft/tree_builder.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "draft/log_odds.h"
#include "draft/soft_target.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr std::size_t kMaxProposals = 128;  // of one source at one node
// Children of a node that was taken with so little above the usual last score hardly come in; leaving them out costs a
// thousandth of the tokens and saves a tenth of the time (Spec-Bench replay, budget 96: 1.0 to 1.5 2.509 to 2.507).
constexpr float kTooNear = 1.5F;
constexpr std::size_t kAlwaysAsked = 8;  // of the nodes taken first
constexpr float kLowestScore = 1e-6F;    // what is less likely is not worth a look
constexpr float kMostCertain = 0.98F;    // all children of a node together
constexpr float kLeastCertain = 1e-5F;
// How far probabilities are trusted when noise decides. Tuned on the bundled pair at T = 0.8.
constexpr float kTableTrust = 0.6F;
constexpr float kModelDoubt = 0.4F;  // 0.3 to 0.45: 4.63 to 4.75 tokens a pass at budget 48
constexpr int kTimedOneIn = 8;
constexpr int kMaxModelRounds = 8;
constexpr std::int64_t kMaxBatch = 16;         // nodes that a draft model is asked about at once
constexpr double kPatience = 0.9;              // of the best tokens a second: below it a search has gone far enough
constexpr float kUnnamed = 2e-3F;              // of a token that a model was asked about and did not name
constexpr float kWorthATimedBatch = 0.5F;      // of the best node's gain, to be asked about with it, where time counts
constexpr float kWorthABatch = 0.05F;          // the same where it does not
constexpr std::int64_t kTriedAgainAfter = 24;  // trees without asking a draft model
constexpr float kWorthNaming = 0.1F;           // of an estimate, to count for what a draft model brings
constexpr float kModelGainRate = 0.05F;
constexpr float kTablesWord = 0.25F;        // how far tables that cover a node make a model's word needless
constexpr double kLeastModelGain = 0.02F;  // tokens that asking a draft model must promise where time is no matter

std::vector<std::uint16_t> cells_of(std::span<Source* const> sources, const BatchSource* model) {
    std::vector<std::uint16_t> cells;
    for (const Source* source : sources) cells.push_back(source->n_cells());
    if (model != nullptr) cells.push_back(static_cast<std::uint16_t>(model->n_cells() + 1));  // the last: unnamed
    return cells;
}

// Adds the time until its end, `weight` times, to a sum; to none where that is null.
class Stopwatch {
public:
    Stopwatch(double* sum, int weight) : sum_(sum), weight_(weight) {
        if (sum_ != nullptr) began_ = std::chrono::steady_clock::now();
    }
    ~Stopwatch() {
        if (sum_ != nullptr)
            *sum_ += weight_ * std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    }
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;

private:
    double* sum_;
    int weight_;
    std::chrono::steady_clock::time_point began_;
};

bool lower(const auto& a, const auto& b) {
    return a.score != b.score ? a.score < b.score : a.candidate > b.candidate;
}

}  // namespace

TreeBuilder::TreeBuilder(std::vector<Source*> sources, BatchSource* model, std::int64_t vocab)
    : sources_(std::move(sources)),
      model_(model),
      calibration_(cells_of(sources_, model_), model_ != nullptr ? sources_.size() : Calibration::kNone),
      counts_(n_sources()),
      seconds_(n_sources()),
      slots_(static_cast<std::size_t>(vocab)),
      silent_cell_(model_ != nullptr ? model_->n_cells() : 0) {}

void TreeBuilder::reset() {
    calibration_.reset();
    usual_cutoff_ = 1e-3F;
    model_gain_ = 0.5F;
    taken_.clear();
    in_tree_.clear();
    nodes_.clear();
}

std::span<TreeBuilder::Candidate> TreeBuilder::candidates_of(std::int32_t node) {
    const Node& at = nodes_[static_cast<std::size_t>(node)];
    return {candidates_.data() + std::max(at.first_candidate, 0), static_cast<std::size_t>(at.n_candidates)};
}

void TreeBuilder::begin(const BuildRequest& request) {
    arena_.reset(request.text.back());
    nodes_.assign(1, Node{.score = 1.0F});
    cursors_.clear();
    for (Source* source : sources_) cursors_.push_back(source->root(request.text));
    candidates_.clear();
    inputs_.clear();
    in_tree_.clear();
    n_asked_ = 0;
    noisy_ = request.noise->present();
    ask(0, request);
}

std::int32_t TreeBuilder::make_node(std::int32_t parent, TokenId token) {
    const std::int32_t node = arena_.append(parent, token);
    nodes_.push_back({});
    CHECK(std::ssize(nodes_) == arena_.size(), "node {} of {}", nodes_.size(), arena_.size());
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        const Cursor above = cursors_[static_cast<std::size_t>(parent) * sources_.size() + i];
        cursors_.push_back(above == kNowhere ? kNowhere : sources_[i]->advance(above, token));
    }
    return node;
}

void TreeBuilder::hear(std::uint16_t source, std::span<const Proposal> proposals) {
    for (const Proposal& proposal : proposals) {
        std::uint32_t& slot = slots_[static_cast<std::size_t>(proposal.token)];
        if (slot == 0) {
            slot_tokens_.push_back(proposal.token);
            slot = static_cast<std::uint32_t>(slot_tokens_.size());
        }
        words_.push_back(
            {.slot = slot - 1,
             .input = {.source = source,
                       .cell = proposal.cell,
                       .probability = proposal.probability,
                       .log_odds = calibration_.corrected_log_odds(source, proposal.cell, proposal.probability)}});
    }
}

// What a model does not name, although tables do, is hardly to come: that is its word, too.
void TreeBuilder::hear_silence(std::size_t n_named_by_tables, std::span<const Word> by_model) {
    named_.assign(n_named_by_tables, 0);
    for (const Word& word : by_model)
        if (word.slot < n_named_by_tables) named_[word.slot] = 1;
    const auto source = static_cast<std::uint16_t>(sources_.size());
    const float log_odds = calibration_.corrected_log_odds(source, silent_cell_, kUnnamed);
    for (std::size_t slot = 0; slot < n_named_by_tables; ++slot)
        if (named_[slot] == 0)
            words_.push_back(
                {.slot = static_cast<std::uint32_t>(slot),
                 .input = {.source = source, .cell = silent_cell_, .probability = kUnnamed, .log_odds = log_odds}});
}

// Puts together what every source says comes behind `node`: its candidates, made anew.
void TreeBuilder::ask(std::int32_t node, const BuildRequest& request) {
    const std::int32_t depth = arena_.depth(node);
    const auto position = static_cast<std::int64_t>(request.text.size()) + depth;
    words_.clear();
    slot_tokens_.clear();
    std::array<Proposal, kMaxProposals> proposals;
    // Estimates sum to 1 at most, so the j-th best scores no more than score / j.
    const float score = nodes_[static_cast<std::size_t>(node)].score;
    const auto most =
        static_cast<std::size_t>(std::clamp(score / (0.5F * usual_cutoff_), 2.0F, static_cast<float>(kMaxProposals)));
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        const Cursor cursor = cursors_[static_cast<std::size_t>(node) * sources_.size() + i];
        if (cursor == kNowhere) continue;
        const Stopwatch watch(n_trees_ % kTimedOneIn == 0 ? &seconds_[i] : nullptr, kTimedOneIn);
        const std::size_t n = sources_[i]->propose(cursor, position, *request.noise, std::span(proposals).first(most));
        hear(static_cast<std::uint16_t>(i), std::span(proposals).first(n));
    }
    if (nodes_[static_cast<std::size_t>(node)].asked_model) {
        const std::size_t n = model_->propose(node, position, *request.noise, std::span(proposals).first(most));
        const std::size_t n_before = slot_tokens_.size();
        const std::size_t n_words = words_.size();
        hear(static_cast<std::uint16_t>(sources_.size()), std::span(proposals).first(n));
        hear_silence(n_before, std::span(words_).subspan(n_words));
    }

    const bool asked_before = nodes_[static_cast<std::size_t>(node)].first_candidate >= 0;  // so it may have children
    const auto first = static_cast<std::int32_t>(candidates_.size());
    const auto first_input = static_cast<std::uint32_t>(inputs_.size());
    for (const TokenId token : slot_tokens_) {
        slots_[static_cast<std::size_t>(token)] = 0;
        candidates_.push_back({.token = token});
    }
    const std::span<Candidate> made(candidates_.data() + first, slot_tokens_.size());
    for (const Word& word : words_) ++made[word.slot].n_inputs;
    std::uint32_t place = first_input;
    for (Candidate& candidate : made) {
        candidate.first_input = place;
        place += candidate.n_inputs;
        candidate.n_inputs = 0;
    }
    inputs_.resize(place);
    for (const Word& word : words_) {
        Candidate& candidate = made[word.slot];
        inputs_[candidate.first_input + candidate.n_inputs++] = word.input;
        candidate.by_model = word.input.source == sources_.size() && word.input.cell != silent_cell_;
    }
    for (Candidate& candidate : made) {
        candidate.merged = calibration_.merge({inputs_.data() + candidate.first_input, candidate.n_inputs});
        if (!asked_before) continue;
        if (const auto child = arena_.child(node, candidate.token)) {
            candidate.node = *child;
            nodes_[static_cast<std::size_t>(*child)].above = static_cast<std::int32_t>(&candidate - candidates_.data());
        }
    }
    estimate(made, position, *request.noise, nodes_[static_cast<std::size_t>(node)].asked_model);
    nodes_[static_cast<std::size_t>(node)].first_candidate = first;
    nodes_[static_cast<std::size_t>(node)].n_candidates = static_cast<std::int32_t>(made.size());
}

// From merged probabilities to chances of acceptance. With noise the target takes the greatest log p + gumbel. A token
// of probability c wins against all others with exp(-(1 - c) / c e^-gumbel), given its own noise. But q, what tables
// believe, is a mean over what c may be in this place: taken as q^trust with probability q^(1 - trust), else 0. At full
// trust that is the exact chance; at none the noise says nothing, and q stays.
void TreeBuilder::reckon_by_tables(Candidate& candidate, std::int64_t position, const PathNoise& noise) {
    const float likely = std::exp(kTableTrust * rough_log(std::max(candidate.merged, kLeastCertain)));
    candidate.reckoned = candidate.merged / likely *
                         std::exp(-(1.0F - likely) / likely * std::exp(-noise.gumbel(position, candidate.token)));
}

// A model's probabilities are of this very place: its candidates compete by log p + gumbel, the sharper the less they
// are doubted, and with the rest of the vocabulary, whose greatest is Gumbel-distributed around the log of its mass.
void TreeBuilder::reckon_by_model(std::span<Candidate> candidates, std::int64_t position, const PathNoise& noise) {
    float best = -std::numeric_limits<float>::infinity();
    float mass = 0.0F;
    for (Candidate& candidate : candidates) {
        if (!candidate.by_model) continue;
        mass += candidate.merged;
        candidate.reckoned = noise.rank(std::max(candidate.merged, kLeastCertain), position, candidate.token);
        best = std::max(best, candidate.reckoned);
    }
    const float rest = 1.0F - std::min(mass, kMostCertain);
    float total = 0.0F;
    for (Candidate& candidate : candidates) {
        if (!candidate.by_model) continue;
        const float rank = candidate.reckoned;
        const float weight = std::exp((rank - best) / kModelDoubt);
        total += weight;
        candidate.reckoned = weight * std::exp(-rest * std::exp(-rank));
    }
    for (Candidate& candidate : candidates)
        if (candidate.by_model) candidate.reckoned /= total;
}

void TreeBuilder::estimate(std::span<Candidate> candidates, std::int64_t position, const PathNoise& noise,
                           bool by_model) const {
    for (Candidate& candidate : candidates) {
        candidate.reckoned = candidate.merged;
        if (noise.present() && !candidate.by_model) reckon_by_tables(candidate, position, noise);
    }
    if (noise.present() && by_model) reckon_by_model(candidates, position, noise);
    float sum = 0.0F;
    for (const Candidate& candidate : candidates) sum += candidate.reckoned;
    const float scale = sum > kMostCertain ? kMostCertain / sum : 1.0F;
    for (Candidate& candidate : candidates) {
        candidate.reckoned *= scale;
        candidate.estimate =
            noise.present() ? calibration_.settle(candidate.merged, candidate.reckoned, by_model) : candidate.reckoned;
    }
}

void TreeBuilder::offer_children(std::int32_t node, const BuildRequest& request) {
    if (arena_.depth(node) >= request.max_depth) return;
    if (nodes_[static_cast<std::size_t>(node)].score < kTooNear * usual_cutoff_ && taken_.size() > kAlwaysAsked) return;
    if (nodes_[static_cast<std::size_t>(node)].first_candidate < 0) ask(node, request);
    const float score = nodes_[static_cast<std::size_t>(node)].score;
    const std::int32_t first = nodes_[static_cast<std::size_t>(node)].first_candidate;
    const std::span<const Candidate> children = candidates_of(node);
    for (std::size_t i = 0; i < children.size(); ++i) {
        const float reached = score * children[i].estimate;
        if (reached < std::max(kLowestScore, 0.1F * usual_cutoff_)) continue;
        offers_.push_back({reached, first + static_cast<std::int32_t>(i), node});
        std::ranges::push_heap(offers_, [](const Offer& a, const Offer& b) { return lower(a, b); });
    }
}

// Takes nodes by falling score until the budget is full, or further ones cannot pay.
void TreeBuilder::search(const BuildRequest& request) {
    for (Node& node : nodes_) node.covered = 0.0F;
    taken_.assign(1, 0);
    expected_.assign(1, 1.0);
    offers_.clear();
    offer_children(0, request);
    double best_rate = request.times == nullptr ? 0.0 : 1.0 / request.times->at(1);
    while (!offers_.empty() && std::ssize(taken_) < request.budget) {
        std::ranges::pop_heap(offers_, [](const Offer& a, const Offer& b) { return lower(a, b); });
        const Offer offer = offers_.back();
        offers_.pop_back();
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
            const double rate = expected_.back() / request.times->at(std::ssize(taken_));
            best_rate = std::max(best_rate, rate);
            if (rate < kPatience * best_rate) break;
        }
        if (std::ssize(taken_) < request.budget) offer_children(node, request);
    }
}

// How many of the taken nodes make the fastest tree.
std::size_t TreeBuilder::best_length(const BuildRequest& request) const {
    if (request.times == nullptr) return taken_.size();
    std::size_t best = 1;
    double best_rate = 0.0;
    for (std::size_t n = 1; n <= taken_.size(); ++n) {
        const double rate = expected_[n - 1] / request.times->at(static_cast<std::int64_t>(n));
        if (rate > best_rate) {
            best_rate = rate;
            best = n;
        }
    }
    return best;
}

// What the draft model's word behind a node is worth in tokens, beyond what tables cover and what a place in the tree
// costs: the last node that the budget holds would go, or one more takes time.
void TreeBuilder::weigh_asking(const BuildRequest& request, std::size_t length) {
    float place_cost = 0.0F;
    if (std::ssize(taken_) >= request.budget) place_cost = nodes_[static_cast<std::size_t>(taken_.back())].score;
    if (const auto n = static_cast<std::int64_t>(length); request.times != nullptr && n < request.times->max_nodes())
        place_cost = std::max(place_cost, static_cast<float>(expected_[length - 1] *
                                                             (request.times->at(n + 1) / request.times->at(n) - 1.0)));
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
    const double seconds_a_token =
        request.times == nullptr ? 0.0 : request.times->at(static_cast<std::int64_t>(length)) / expected_[length - 1];
    weigh_asking(request, length);
    const double gain = choose_batch(request, seconds_a_token);
    if (batch_.empty()) return false;
    if (request.times == nullptr) {
        if (gain < kLeastModelGain) return false;
    } else {
        // What it costs is known from asking: after a while without, it is tried again.
        const bool try_again = n_asked_ == 0 && n_trees_ - last_asked_ >= kTriedAgainAfter;
        if (!try_again && gain * seconds_a_token < model_->expand_seconds(std::ssize(batch_))) return false;
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

double TreeBuilder::grow(TokenTree& tree, const BuildRequest& request) {
    CHECK(tree.size() == 1 && !request.text.empty() && request.noise != nullptr && request.budget >= 1);
    begin(request);
    search(request);
    if (model_ != nullptr && request.max_depth > 0 && request.budget > 1)
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
    if (length > 1) {
        const float cutoff = std::max(nodes_[static_cast<std::size_t>(taken_[length - 1])].score, kLowestScore);
        usual_cutoff_ += 0.2F * (cutoff - usual_cutoff_);
    }
    ++n_trees_;
    return expected_[length - 1];
}

std::span<const std::int32_t> TreeBuilder::expanded_path(std::span<const std::int32_t> accepted) {
    path_.clear();
    for (const std::int32_t node : accepted) {
        if (node >= std::ssize(in_tree_)) break;
        path_.push_back(in_tree_[static_cast<std::size_t>(node)]);
    }
    return path_;
}

// With noise, what came says little about what was likely; the target's own probabilities say it all. `logits`: of the
// node, [vocab], or null.
void TreeBuilder::learn_node(std::int32_t node, TokenId came, const float* logits, double temperature) {
    const bool by_model = nodes_[static_cast<std::size_t>(node)].asked_model;
    SoftTarget target;
    if (noisy_ && logits != nullptr) target = soft_target({logits, slots_.size()}, temperature);
    float named_hit = 0.0F;
    for (const Candidate& candidate : candidates_of(node)) {
        const float hit = candidate.token == came ? 1.0F : 0.0F;
        if (candidate.by_model && candidate.estimate > kWorthNaming) named_hit += hit;
        const std::span<const Calibration::Input> inputs(inputs_.data() + candidate.first_input, candidate.n_inputs);
        if (!noisy_) {
            calibration_.learn(inputs, candidate.merged, hit);
        } else {
            if (logits != nullptr)
                calibration_.learn(inputs, candidate.merged,
                                   target.probability(logits[static_cast<std::size_t>(candidate.token)]));
            calibration_.learn_estimate(candidate.merged, candidate.reckoned, by_model, hit);
        }
        if (candidate.node < 0 || tree_place_[static_cast<std::size_t>(candidate.node)] < 0) continue;  // not offered
        for (const Calibration::Input& input : inputs) {
            if (input.cell == silent_cell_ && input.source == sources_.size()) continue;
            ++counts_[input.source].offered;
            if (hit > 0.0F) ++counts_[input.source].accepted;
        }
    }
    if (by_model) model_gain_ += kModelGainRate * (named_hit - model_gain_);
}

void TreeBuilder::learn(const BuildOutcome& outcome) {
    CHECK(outcome.accepted.size() == outcome.came.size(), "{} nodes, {} tokens", outcome.accepted.size(),
          outcome.came.size());
    for (std::size_t i = 0; i < outcome.accepted.size(); ++i) {
        const std::int32_t node = outcome.accepted[i];
        if (node >= std::ssize(in_tree_)) return;  // hung under the tree by others
        learn_node(in_tree_[static_cast<std::size_t>(node)], outcome.came[i],
                   outcome.logits.empty() ? nullptr : float_row(outcome.logits, node), outcome.temperature);
    }
}

}  // namespace slipstream::draft
