// What all sources say behind one node, put together: the second part of TreeBuilder.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "draft/stopwatch.h"
#include "draft/tree/log_odds.h"
#include "draft/tree/tree_builder.h"

namespace slipstream::draft {

namespace {

constexpr int kTimedOneIn = 8;  // trees
// Of the usual last score: what a child is taken to reach at most, and what no child is heard for. (Spec-Bench replay,
// budget 96: 2.535 tokens a pass with 0.8 and 0 as with 1.6 and 0.1, a sixth fewer instructions a tree.)
constexpr float kSeldomReached = 1.6F;
constexpr float kHopeless = 0.1F;
constexpr float kUnnamed = 2e-3F;      // of a token that a model was asked about and did not name
constexpr float kMostCertain = 0.98F;  // the likeliest child of a node
constexpr float kAllCertain = 0.99F;   // all of them together
constexpr float kLeastCertain = 1e-5F;
// How far probabilities are trusted when noise decides. Tuned on the bundled pair at T = 0.8.
constexpr float kTableTrust = 0.6F;
constexpr float kModelDoubt = 0.8F;  // 0.6 to 1: a surprise of 0.51 to 0.53 nats a node
constexpr float kRestHeard = 0.2F;   // 0.1 to 0.3: the same; at 1, and doubt at 0.4, 0.6 nats

}  // namespace

void TreeBuilder::hear(std::uint16_t source, std::span<const Proposal> proposals) {
    std::array<float, kMaxProposals> log_odds;
    calibration_.corrected_log_odds(source, proposals, log_odds);
    for (std::size_t i = 0; i < proposals.size(); ++i) {
        const Proposal& proposal = proposals[i];
        std::uint32_t& slot = slots_[static_cast<std::size_t>(proposal.token)];
        if (slot == 0) {
            candidates_.push_back({.token = proposal.token});
            slot = static_cast<std::uint32_t>(candidates_.size() - first_made_);
        }
        ++candidates_[first_made_ + slot - 1].n_inputs;
        words_.push_back({.slot = slot - 1,
                          .input = {.source = source,
                                    .cell = proposal.cell,
                                    .probability = proposal.probability,
                                    .log_odds = log_odds[i]}});
    }
}

// What a model does not name, although tables do, is hardly to come: that is its word, too.
void TreeBuilder::hear_silence(std::size_t n_named_by_tables, std::span<const Word> by_model) {
    named_.assign(n_named_by_tables, 0);
    for (const Word& word : by_model)
        if (word.slot < n_named_by_tables) named_[word.slot] = 1;
    const auto source = static_cast<std::uint16_t>(sources_.size());
    const float log_odds = calibration_.corrected_log_odds(source, silent_cell_, kUnnamed);
    for (std::size_t slot = 0; slot < n_named_by_tables; ++slot) {
        if (named_[slot] != 0) continue;
        ++candidates_[first_made_ + slot].n_inputs;
        words_.push_back(
            {.slot = static_cast<std::uint32_t>(slot),
             .input = {.source = source, .cell = silent_cell_, .probability = kUnnamed, .log_odds = log_odds}});
    }
}

// Most nodes are never asked about: sources go along only where they are. The parent was asked about before.
void TreeBuilder::advance_cursors(std::int32_t node) {
    const std::int32_t parent = arena_.parent(node);
    if (parent < 0) return;
    const Cursor* above = cursors_.data() + static_cast<std::size_t>(parent) * sources_.size();
    Cursor* here = cursors_.data() + static_cast<std::size_t>(node) * sources_.size();
    for (std::size_t i = 0; i < sources_.size(); ++i)
        if (above[i] != kNowhere) here[i] = sources_[i]->advance(above[i], arena_.token(node));
}

// Puts together what every source says comes behind `node`: its candidates, made anew.
void TreeBuilder::ask(std::int32_t node, const BuildRequest& request) {
    const Node& at = nodes_[static_cast<std::size_t>(node)];
    if (at.first_candidate < 0) advance_cursors(node);
    const auto position = static_cast<std::int64_t>(request.text.size()) + arena_.depth(node);
    words_.clear();
    first_made_ = candidates_.size();
    // Estimates sum to 1 at most, so the j-th best scores no more than score / j; half of that is taken.
    const auto most = static_cast<std::size_t>(
        std::clamp(at.score / (kSeldomReached * usual_cutoff_), 2.0F, static_cast<float>(kMaxProposals)));
    const std::span<Proposal> room = std::span(proposals_).first(most);
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        const Cursor cursor = cursors_[static_cast<std::size_t>(node) * sources_.size() + i];
        if (cursor == kNowhere) continue;
        const Stopwatch watch(n_trees_ % kTimedOneIn == 0 ? &seconds_[i] : nullptr, kTimedOneIn);
        std::size_t n = sources_[i]->propose(cursor, position, *request.noise, room);
        // Likeliest first, unless ranked by noise: what cannot come near the usual last score is not even heard.
        if (!noisy_)
            while (n > 1 && at.score * room[n - 1].probability < kHopeless * usual_cutoff_) --n;
        hear(static_cast<std::uint16_t>(i), room.first(n));
    }
    if (at.asked_model) {
        const std::size_t n = model_->propose(node, position, *request.noise, room);
        const std::size_t n_before = candidates_.size() - first_made_;
        const std::size_t n_words = words_.size();
        hear(static_cast<std::uint16_t>(sources_.size()), room.first(n));
        hear_silence(n_before, std::span(words_).subspan(n_words));
    }
    put_together(node);
    const std::span<Candidate> made = std::span(candidates_).subspan(first_made_);
    estimate(made, position, *request.noise, at.asked_model);
    if (at.first_candidate < 0 && !at.asked_model)
        for (Candidate& candidate : made) candidate.by_tables = candidate.estimate;
    nodes_[static_cast<std::size_t>(node)].first_candidate = static_cast<std::int32_t>(first_made_);
    nodes_[static_cast<std::size_t>(node)].n_candidates = static_cast<std::int32_t>(made.size());
}

// Gives every candidate behind `node` its words, in the order of the sources, and merges them. Where the node was asked
// about before, with less to hear, its candidates keep the nodes that were made of them.
void TreeBuilder::put_together(std::int32_t node) {
    const std::span<Candidate> made = std::span(candidates_).subspan(first_made_);
    if (nodes_[static_cast<std::size_t>(node)].first_candidate >= 0) {
        for (const Candidate& known : candidates_of(node))
            if (const std::uint32_t slot = slots_[static_cast<std::size_t>(known.token)]; slot != 0) {
                made[slot - 1].by_tables = known.by_tables;
                made[slot - 1].node = known.node;
            }
    }
    auto place = static_cast<std::uint32_t>(inputs_.size());
    for (Candidate& candidate : made) {
        slots_[static_cast<std::size_t>(candidate.token)] = 0;
        candidate.first_input = place;
        place += candidate.n_inputs;
        candidate.n_inputs = 0;
    }
    inputs_.resize(place);
    for (const Word& word : words_) {
        Candidate& candidate = made[word.slot];
        inputs_[candidate.first_input + candidate.n_inputs++] = word.input;
    }
    for (Candidate& candidate : made) {
        const Calibration::Input& last = inputs_[candidate.first_input + candidate.n_inputs - 1];
        candidate.by_model = last.source == sources_.size() && !is_silence(last);
        candidate.merged = calibration_.merge(words_that_count(candidate));
        if (candidate.node >= 0)
            nodes_[static_cast<std::size_t>(candidate.node)].above =
                static_cast<std::int32_t>(&candidate - candidates_.data());
    }
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
// are doubted, and with the rest of the vocabulary, whose greatest would be Gumbel-distributed around the log of its
// mass; but it lost against those that are named by the noise that is known already, so little of it counts.
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
        candidate.reckoned = weight * std::exp(-kRestHeard * rest * std::exp(-rank));
    }
    for (Candidate& candidate : candidates)
        if (candidate.by_model) candidate.reckoned /= total;
}

void TreeBuilder::estimate(std::span<Candidate> candidates, std::int64_t position, const PathNoise& noise,
                           bool by_model) const {
    for (Candidate& candidate : candidates) {
        candidate.reckoned = candidate.merged;
        if (!noise.present() || candidate.by_model) continue;
        // What a model did not name is below its filters, as it is below the target's: tables cannot say better.
        if (by_model) {
            candidate.reckoned = 0.0F;
        } else {
            reckon_by_tables(candidate, position, noise);
        }
    }
    if (noise.present() && by_model) reckon_by_model(candidates, position, noise);
    if (candidates.empty()) return;
    float sum = 0.0F;
    for (const Candidate& candidate : candidates) sum += candidate.reckoned;
    const auto likeliest = std::ranges::max_element(candidates, {}, &Candidate::reckoned);
    const float most = likeliest->reckoned;
    // What is too much in all goes off the others: many doubtful words make no sure one less sure.
    const float most_left = std::min(most, kMostCertain);
    const float scale = sum > kAllCertain ? (kAllCertain - most_left) / std::max(sum - most, kLeastCertain) : 1.0F;
    for (Candidate& candidate : candidates) {
        candidate.reckoned = &candidate == &*likeliest ? most_left : candidate.reckoned * std::min(scale, 1.0F);
        candidate.estimate =
            noise.present() ? calibration_.settle(candidate.merged, candidate.reckoned, by_model) : candidate.reckoned;
    }
}

}  // namespace slipstream::draft
