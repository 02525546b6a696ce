#include "draft/drafter.h"

#include <algorithm>
#include <utility>

#include "draft/sources_drafter.h"
#include "draft/stopwatch.h"
#include "draft/tables/model_fingerprint.h"
#include "kernels/sampling.h"

namespace slipstream::draft {

namespace {

constexpr double kNoticed = 0.02;  // of a plain pass: drafting in vain that costs less is no loss

std::vector<Source*> pointers(const SourceSet& set) {
    std::vector<Source*> sources;
    for (const auto& source : set.tables) sources.push_back(source.get());
    return sources;
}

}  // namespace

SourcesDrafter::SourcesDrafter(const DraftOptions& options, const DraftTarget& target)
    : options_(options),
      temperature_(target.sampling.temperature),
      sources_(make_sources(options, target)),
      times_(std::max<std::int64_t>(options.max_budget, 1)),
      builder_(pointers(sources_), sources_.model.get(), target.vocab),
      ngrammys_({}),
      drawn_(target.sampling.seed) {
    if (target.sampling.temperature > 0.0 && options.noise_ranking == NoiseRanking::Aware)
        noise_ = PathNoise(target.sampling.seed);
    growth_ = choose_growth();
    const auto n_light = std::ranges::count_if(sources_.tables, [](const auto& table) { return table->is_light(); });
    const bool mixed = n_light > 0 && n_light < std::ssize(sources_.tables);
    has_crews_ = mixed || (sources_.model && !sources_.tables.empty());
    scratch_.reserve(static_cast<std::size_t>(std::max<std::int64_t>(options.max_budget, 1)));
    for (const auto& source : sources_.tables) figures_.push_back({.name = source->name()});
    if (sources_.model) figures_.push_back({.name = sources_.model->name()});
    if (options.tables && target.files != nullptr) {
        store_.emplace(TableStoreOptions{.folder = *options.tables, .on_note = target.on_note});
        fingerprint_ = model_fingerprint(*target.files);
        load();
    }
}

void SourcesDrafter::reset() {
    for (const auto& source : sources_.tables) source->reset();
    builder_.reset();
    pace_ = {};
    switch_.reset();
    crews_.reset();
    crew_ = Crew::Everyone;
    missed_.reset();
    chain_acceptance_ = kFirstAcceptance;
}

void SourcesDrafter::propose(TokenTree& tree, const ProposalLimits& limits) {
    const Clock::time_point began = Clock::now();
    guessed_ = growth_ != Growth::Nothing && limits.budget > 1 && limits.max_depth > 0 &&
               (!options_.adapt_budget || growth_ == Growth::Drawn || switch_.take_turn());
    const std::int64_t budget = std::clamp<std::int64_t>(options_.max_budget, 1, limits.budget);
    // A lone source's own tree knows no time: where as many nodes are wanted as pay, the builder grows one of its
    // guesses.
    const bool timed = options_.adapt_budget && times_.measured();
    growing_ = growth_ == Growth::OwnShape && timed && !options_.shape ? Growth::Merged : growth_;
    const bool may_choose = timed && growing_ == Growth::Merged && has_crews_;
    choosing_ = guessed_ && may_choose;
    crew_ = may_choose ? crews_.next() : Crew::Everyone;
    model_seconds_ = model_seconds();
    // What they missed while others guessed.
    if (asks_all_tables(crew_) && missed_.behind(limits.text)) tell(Weight::Heavy, missed_.told({.text = limits.text}));
    drawn_.reset(std::ssize(limits.text), budget);
    expected_ = 0.0;
    if (guessed_) {
        const ShapeRequest request{
            .text = limits.text, .budget = budget, .max_depth = limits.max_depth, .noise = &noise_};
        grow(tree, request);
        if (growing_ != Growth::Merged && figures_.size() == 1) figures_.front().seconds += seconds_since(began);
        use_leftover(tree, request);
    }
    draft_seconds_ = seconds_since(began);
}

// What the tables learn from, and under noise the tree builder, which asks for tokens by name: most are among the best.
LogitRequest SourcesDrafter::logit_request() const {
    LogitRequest needs;
    // A lone source's own tree may give way to the builder's, once passes are timed (propose()).
    const bool may_build = growth_ == Growth::Merged || (growth_ == Growth::OwnShape && !options_.shape);
    if (noise_.present() && may_build) needs = {.n_best = kMostTopLogits, .sum_temperature = temperature_};
    for (const auto& source : sources_.tables) needs = both(needs, source->logit_request());
    return needs;
}

void SourcesDrafter::learn(const Observation& observation) {
    const std::span<const TokenId> came = observation.text.last(static_cast<std::size_t>(observation.n_new));
    const bool built = guessed_ && growing_ == Growth::Merged;
    if (built) {
        shares_ = builder_.learn({.accepted = observation.accepted,
                                  .came = came,
                                  .logits = observation.logits,
                                  .temperature = temperature_});
    } else if (guessed_) {
        count_shape(observation);
    }
    if (!sources_.model) return;
    Observation seen = observation;
    if (built) {
        // The draft model knows the nodes that it was asked about by the builder's own tree.
        seen.tree = &builder_.expanded_tree();
        seen.accepted = builder_.expanded_path(observation.accepted);
        seen.logits = {};
    }
    const Clock::time_point began = Clock::now();
    sources_.model->observe(seen);
    figures_.back().seconds += seconds_since(began);
}

void SourcesDrafter::observe(const Observation& observation) {
    const Clock::time_point began = Clock::now();
    if (observation.tree != nullptr) {
        learn(observation);
    } else if (sources_.model) {
        sources_.model->observe(observation);
    }
    const bool another_text = observation.n_new == std::ssize(observation.text);
    if (another_text) tell_rest();
    tell(Weight::Light, observation);
    const bool can_wait = another_text && has_crews_ && !asks_all_tables(crews_.next());
    if (!can_wait && (observation.tree == nullptr || asks_all_tables(crew_))) {
        tell(Weight::Heavy, missed_.told(observation));
    } else {
        missed_.miss(observation);
    }
    if (observation.tree == nullptr || observation.pass_seconds <= 0.0) return;
    times_.add(observation.tree->size(), observation.pass_seconds);
    if (guessed_) judge(observation, draft_seconds_ + seconds_since(began));
}

// Light tables hear of every pass, the others at once or when they are asked again.
void SourcesDrafter::tell(Weight weight, const Observation& observation) {
    Clock::time_point before = Clock::now();
    for (std::size_t i = 0; i < sources_.tables.size(); ++i) {
        if (sources_.tables[i]->is_light() != (weight == Weight::Light)) continue;
        sources_.tables[i]->observe(observation);
        const Clock::time_point now = Clock::now();
        figures_[i].seconds += seconds_between(before, now);
        before = now;
    }
}

// What they missed of a text that ends.
void SourcesDrafter::tell_rest() {
    if (const std::optional<Observation> rest = missed_.rest()) tell(Weight::Heavy, *rest);
}

// Whether guessing pays, and whose; `seconds`: that drafting and learning took.
void SourcesDrafter::judge(const Observation& observation, double seconds) {
    if (observation.tree->size() > 1 || draft_seconds_ > kNoticed * times_.at(1))
        switch_.record(expected_ > 0.0 ? expected_ : static_cast<double>(observation.n_new), observation.n_new,
                       observation.pass_seconds + seconds, times_.at(1));
    pace_.add(observation.n_new, observation.pass_seconds + seconds);
    if (!choosing_) return;
    const double by_model = model_seconds() - model_seconds_;
    crews_.record(shares_, {.pass = observation.pass_seconds, .model = by_model, .others = seconds - by_model});
}

// Of all passes so far.
double SourcesDrafter::model_seconds() const {
    return sources_.model ? builder_.seconds().back() + figures_.back().seconds : 0.0;
}

std::vector<SourceFigures> SourcesDrafter::figures() const {
    std::vector<SourceFigures> figures = figures_;
    for (std::size_t i = 0; i < figures.size(); ++i) {
        figures[i].offered += builder_.counts()[i].offered;
        figures[i].accepted += builder_.counts()[i].accepted;
        figures[i].seconds += builder_.seconds()[i];
    }
    return figures;
}

std::size_t SourcesDrafter::memory_bytes() const {
    std::size_t sum = 0;
    for (const auto& source : sources_.tables) sum += source->memory_bytes();
    return sum;
}

std::unique_ptr<Drafter> make_drafter(const DraftOptions& options, const DraftTarget& target) {
    return std::make_unique<SourcesDrafter>(options, target);
}

}  // namespace slipstream::draft
