// What all sources say behind one node, put together: the second part of TreeBuilder.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "draft/log_odds.h"
#include "draft/stopwatch.h"
#include "draft/tree_builder.h"

namespace slipstream::draft {

namespace {

constexpr std::size_t kMaxProposals = 128;  // of one source at one node
constexpr int kTimedOneIn = 8;              // trees
constexpr float kUnnamed = 2e-3F;           // of a token that a model was asked about and did not name
constexpr float kMostCertain = 0.98F;       // the likeliest child of a node
constexpr float kAllCertain = 0.99F;        // all of them together
constexpr float kLeastCertain = 1e-5F;
// How far probabilities are trusted when noise decides. Tuned on the bundled pair at T = 0.8.
constexpr float kTableTrust = 0.6F;
constexpr float kModelDoubt = 0.4F;  // 0.3 to 0.45: 4.63 to 4.75 tokens a pass at budget 48

}  // namespace

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
    if (nodes_[static_cast<std::size_t>(node)].first_candidate < 0) advance_cursors(node);
    const std::int32_t depth = arena_.depth(node);
    const auto position = static_cast<std::int64_t>(request.text.size()) + depth;
    words_.clear();
    slot_tokens_.clear();
    std::array<Proposal, kMaxProposals> proposals;
    // Estimates sum to 1 at most, so the j-th best scores no more than score / j.
    const float score = nodes_[static_cast<std::size_t>(node)].score;
    const auto most =
        static_cast<std::size_t>(std::clamp(score / (0.8F * usual_cutoff_), 2.0F, static_cast<float>(kMaxProposals)));
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
    const std::span<const Candidate> known = candidates_of(node);
    by_tables_.assign(slot_tokens_.size(), 0.0F);
    for (const Candidate& candidate : known)
        if (const std::uint32_t slot = slots_[static_cast<std::size_t>(candidate.token)]; slot != 0)
            by_tables_[slot - 1] = candidate.by_tables;
    const auto first = static_cast<std::int32_t>(candidates_.size());
    const auto first_input = static_cast<std::uint32_t>(inputs_.size());
    for (const TokenId token : slot_tokens_) {
        slots_[static_cast<std::size_t>(token)] = 0;
        candidates_.push_back(
            {.token = token, .by_tables = by_tables_[candidates_.size() - static_cast<std::size_t>(first)]});
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
        candidate.by_model = word.input.source == sources_.size() && !is_silence(word.input);
    }
    for (Candidate& candidate : made) {
        candidate.merged = calibration_.merge(words_that_count(candidate));
        if (!asked_before) continue;
        if (const auto child = arena_.child(node, candidate.token)) {
            candidate.node = *child;
            nodes_[static_cast<std::size_t>(*child)].above = static_cast<std::int32_t>(&candidate - candidates_.data());
        }
    }
    estimate(made, position, *request.noise, nodes_[static_cast<std::size_t>(node)].asked_model);
    if (!asked_before && !nodes_[static_cast<std::size_t>(node)].asked_model)
        for (Candidate& candidate : made) candidate.by_tables = candidate.estimate;
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
