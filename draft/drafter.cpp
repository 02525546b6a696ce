#include "draft/drafter.h"

#include <algorithm>
#include <utility>

#include "draft/sources_drafter.h"
#include "draft/stopwatch.h"
#include "kernels/base/error.h"
#include "kernels/sampling.h"
#include "runtime/formats/model_fingerprint.h"

namespace slipstream::draft {

SourcesDrafter::SourcesDrafter(const DraftOptions& options, const DraftContext& target)
    : options_(without_unusable_sources(options, target)),
      sampling_(target.sampling),
      sources_(make_sources(options_, target)),
      noise_(known_noise()),
      control_(std::max<std::int64_t>(options.max_budget, 1), target.planned_seconds),
      builder_(sources_.table_list(), sources_.model_list(), target.vocab),
      drawn_(target.sampling.seed),
      two_model_chain_(target.vocab, target.sampling.seed) {
    growth_ = choose_growth();
    chain_.scratch.reserve(std::max<std::int64_t>(options.max_budget, 1));
    for (const auto& source : sources_.tables) figures_.push_back({.name = source->name()});
    for (const auto& source : sources_.models) figures_.push_back({.name = source->name()});
    if (options.tables && target.files != nullptr) {
        store_.emplace(TableStoreOptions{.folder = *options.tables, .on_note = target.on_note});
        fingerprint_ = model_fingerprint(*target.files);
        load();
    }
}

PathNoise SourcesDrafter::known_noise() const {
    const bool known = sampling_.temperature > 0.0 && options_.noise_ranking == NoiseRanking::Aware;
    return known ? PathNoise(sampling_.seed) : PathNoise();
}

void SourcesDrafter::set_sampling(const SamplerOptions& sampling) {
    SamplerOptions reseeded = sampling_;
    reseeded.seed = sampling.seed;
    keep_calibration();
    const CalibrationKind kind = calibration_kind();
    sampling_ = sampling;
    noise_ = known_noise();
    drawn_.set_seed(sampling.seed);
    two_model_chain_.set_seed(sampling.seed);
    if (sampling == reseeded) return;
    if (sampling.temperature != reseeded.temperature)
        for (const auto& source : sources_.tables) source->set_temperature(sampling.temperature);
    for (const auto& source : sources_.models) source->set_sampling(sampling);
    control_.reset();
    chain_.acceptance = kFirstAcceptance;
    if (calibration_kind() == kind) return;
    use_calibration();
}

void SourcesDrafter::reset() {
    for (const auto& source : sources_.tables) source->reset();
    builder_.reset();
    for (std::vector<float>& state : kept_calibrations_) state.clear();
    used_calibrations_ = {};
    control_.reset();
    chain_.acceptance = kFirstAcceptance;
}

void SourcesDrafter::propose(TokenTree& tree, const ProposalLimits& limits) {
    const Clock::time_point began = Clock::now();
    // Fixed and drawn shapes (distribution-exact sampling, E3) follow from options and counts alone, never from a
    // clock.
    const bool follows_time = options_.adapt_budget && growth_ != Growth::Drawn;
    const bool wanted = growth_ != Growth::Nothing && limits.budget > 1 && limits.max_depth > 0;
    pass_ = {.growth = growth_};
    // The own tree of a lone source does not depend on time. If the tree budget follows measured pass times, the tree
    // builder grows the tree instead.
    if (growth_ == Growth::OwnShape && follows_time && control_.curve().known() && !options_.shape)
        pass_.growth = Growth::Merged;
    const bool is_first = std::exchange(is_first_pass_, false);
    const bool probes = pass_.growth == Growth::Merged && !is_first;
    const bool ready = sources_.view == nullptr || sources_.view->ready(limits.text);
    const bool turn = control_.should_draft(std::ssize(limits.text), probes, ready ? ViewReady::Yes : ViewReady::No);
    pass_.guessed = wanted && (turn || !follows_time);
    const std::int64_t budget = std::clamp<std::int64_t>(options_.max_budget, 1, limits.budget);
    drawn_.reset(std::ssize(limits.text), budget);
    if (pass_.guessed) {
        const ShapeRequest request{
            .text = limits.text, .budget = budget, .max_depth = limits.max_depth, .noise = &noise_};
        try {
            grow(tree, request);
            if (pass_.growth != Growth::Merged && (figures_.size() == 1 || pass_.growth == Growth::Drawn))
                figures_[pass_.drawn_by].seconds += seconds_since(began);
            fill_unused_nodes(tree, request);
        } catch (const FormatError&) {
            // The weights of a model, which may be the target's own, give a draft token no finite numbers. The text
            // does not depend on draft tokens (E1), so this pass has none. Draws that were made stay known (E3).
            tree.reset(limits.text.back());
            pass_.guessed = false;
        }
    }
    pass_.draft_seconds = seconds_since(began);
}

// Requests what tables learn from. With noise it adds the best logits of each row and the sum that normalises them, for
// the tree builder: that looks up single tokens, most of which are among the best.
LogitRequest SourcesDrafter::logit_request() const {
    LogitRequest needs;
    // The tree builder may replace a lone source's own tree once passes are measured (propose()).
    const bool may_build = growth_ == Growth::Merged || (growth_ == Growth::OwnShape && !options_.shape);
    if (noise_.present() && may_build) needs = {.n_best = kMostTopLogits, .sum_temperature = sampling_.temperature};
    for (const auto& source : sources_.tables) needs = both(needs, source->logit_request());
    return needs;
}

void SourcesDrafter::learn(const Observation& observation) {
    const std::span<const TokenId> came = observation.text.last(observation.n_new);
    if (pass_.guessed && pass_.growth == Growth::Merged) {
        builder_.learn({.accepted = observation.accepted,
                        .came = came,
                        .logits = observation.logits,
                        .temperature = sampling_.temperature});
    } else if (pass_.guessed) {
        count_shape(observation);
    }
}

void SourcesDrafter::observe(const Observation& observation) {
    const Clock::time_point began = Clock::now();
    if (observation.tree != nullptr) {
        learn(observation);
    } else if (observation.n_new > 0) {
        is_first_pass_ = true;
    }
    const std::size_t n_tables = sources_.tables.size();
    for (std::size_t i = 0; i < figures_.size(); ++i) {
        const Stopwatch control(figures_[i].seconds);
        if (i < n_tables) {
            sources_.tables[i]->observe(observation);
        } else {
            sources_.models[i - n_tables]->observe(observation);
        }
    }
    if (observation.tree == nullptr) return;
    control_.record({.n_nodes = observation.tree->size(),
                     .n_tokens = observation.n_new,
                     .pass_seconds = observation.pass_seconds,
                     .draft_seconds = pass_.draft_seconds + seconds_since(began),
                     .expected = pass_.expected,
                     .guessed = pass_.guessed});
}

std::vector<SourceFigures> SourcesDrafter::figures() const {
    std::vector<SourceFigures> figures = figures_;
    for (std::size_t i = 0; i < figures.size(); ++i) {
        const GuessCounts& counts = builder_.counts()[i];
        figures[i].offered += counts.offered;
        figures[i].accepted += counts.accepted;
        figures[i].parents += counts.parents;
        figures[i].seconds += counts.seconds;
        if (i >= sources_.tables.size()) figures[i].passes = sources_.models[i - sources_.tables.size()]->passes();
    }
    return figures;
}

void SourcesDrafter::attach_view(ViewPasses& passes, PlannedSeconds planned_seconds) {
    if (sources_.view != nullptr) sources_.view->attach(passes, std::move(planned_seconds));
}

void SourcesDrafter::attach_hidden(const HiddenTail& tail) {
    if (sources_.head != nullptr) sources_.head->attach(tail);
}

std::size_t SourcesDrafter::memory_bytes() const {
    std::size_t sum = 0;
    for (const auto& source : sources_.tables) sum += source->memory_bytes();
    return sum;
}

std::unique_ptr<Drafter> make_drafter(const DraftOptions& options, const DraftContext& target) {
    return std::make_unique<SourcesDrafter>(options, target);
}

}  // namespace slipstream::draft
