#include "draft/drafter.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "draft/crew_choice.h"
#include "draft/drawn_tree.h"
#include "draft/guess_switch.h"
#include "draft/missed_text.h"
#include "draft/pace.h"
#include "draft/shapes/chain_shape.h"
#include "draft/shapes/drawn_shape.h"
#include "draft/source_set.h"
#include "draft/tables/model_fingerprint.h"
#include "draft/tables/table_store.h"
#include "draft/tree_builder.h"
#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "kernels/sampling.h"

namespace slipstream::draft {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kDefaultGamma = 6;  // until there is something to adapt it by
constexpr std::int64_t kLongestChain = 32;
constexpr std::int64_t kChainSearch = 64;  // nodes looked at for the likeliest path
constexpr double kFirstAcceptance = 0.6;   // of a chain's guesses
constexpr double kNoticed = 0.02;          // of a plain pass: drafting in vain that costs less is no loss
constexpr double kAcceptanceRate = 0.1;
constexpr double kFreeNodes = 1.02;  // leftover nodes may make a pass this much longer
constexpr std::string_view kCalibrationSection = "calibration";
constexpr int kCalibrationVersion = 2;  // of what estimates mean, before they are corrected

double seconds_since(Clock::time_point began) {
    return std::chrono::duration<double>(Clock::now() - began).count();
}

std::vector<Source*> pointers(const SourceSet& set) {
    std::vector<Source*> sources;
    for (const auto& source : set.tables) sources.push_back(source.get());
    return sources;
}

class SourcesDrafter final : public Drafter {
public:
    SourcesDrafter(const DraftOptions& options, const DraftTarget& target);

    [[nodiscard]] LogitNeeds logit_needs() const override;
    void propose(TokenTree& tree, const ProposalLimits& limits) override;
    void observe(const Observation& observation) override;

    [[nodiscard]] PassTimes& pass_times() override { return times_; }
    [[nodiscard]] PassTimes* draft_pass_times() override {
        return sources_.model ? &sources_.model->pass_times() : nullptr;
    }
    void measure_draft_model(double max_seconds) override {
        if (sources_.model) sources_.model->measure(max_seconds);
    }
    [[nodiscard]] const DraftDistributions* distributions() const override {
        return options_.child_rule == ChildRule::Draw ? &drawn_ : nullptr;
    }
    [[nodiscard]] std::vector<SourceFigures> figures() const override;
    void reset() override;
    void save() override;
    [[nodiscard]] std::size_t memory_bytes() const override;

private:
    // How the tree of a pass comes to be.
    enum class Growth : std::uint8_t { Nothing, Merged, OwnShape, NGrammys, Chain, Drawn };
    enum class Weight : std::uint8_t { Light, Heavy };  // of tables: Source::is_light()

    [[nodiscard]] Growth choose_growth();
    [[nodiscard]] Source* shape_of(std::string_view name) const;
    void load();
    [[nodiscard]] std::string source_list() const;
    void use_leftover(TokenTree& tree, ShapeRequest request);
    void grow(TokenTree& tree, const ShapeRequest& request);
    void grow_chain(TokenTree& tree, const ShapeRequest& request);
    [[nodiscard]] std::int64_t gamma() const;
    void count_shape(const Observation& observation);
    void learn(const Observation& observation);
    void tell(Weight weight, const Observation& observation);
    void tell_rest();
    [[nodiscard]] double model_seconds() const;
    void judge(const Observation& observation, double seconds);

    DraftOptions options_;
    double temperature_;  // of the target
    SourceSet sources_;
    PathNoise noise_;
    PassTimes times_;
    TreeBuilder builder_;
    Pace pace_;
    GuessSwitch switch_;
    CrewChoice crews_;
    NgrammysShape ngrammys_;
    DrawnTree drawn_;
    Source* shape_source_ = nullptr;  // of Growth::OwnShape
    bool has_crews_ = false;          // there is somebody to leave out
    Growth growth_ = Growth::Nothing;
    Growth growing_ = Growth::Nothing;          // in the running pass
    bool guessed_ = false;                      // in the running pass
    double expected_ = 0.0;                     // tokens of the running pass; 0: nobody knows
    bool choosing_ = false;                     // who guesses in the running pass was crews_'s to say
    Crew crew_ = Crew::Everyone;                // of the running pass
    MissedText missed_;                         // by the tables
    WalkShares shares_;                         // of the running pass
    double draft_seconds_ = 0.0;                // of the running pass
    double model_seconds_ = 0.0;                // of the draft model before the running pass
    TokenTree scratch_;                         // chains of several sources
    std::vector<SourceFigures> figures_;        // of shapes, and what observing cost; [tables], then the model
    std::vector<std::uint32_t> chain_sources_;  // [chain of several sources]: who named each node, a bit a source
    double chain_acceptance_ = kFirstAcceptance;
    std::optional<TableStore> store_;
    std::uint64_t fingerprint_ = 0;
};

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

Source* SourcesDrafter::shape_of(std::string_view name) const {
    if (Source* source = sources_.find(name)) return source;
    throw RequestError(fmt::format("the tree {} is that of the source {}; add it to --draft", name, name));
}

SourcesDrafter::Growth SourcesDrafter::choose_growth() {
    if (options_.sources.empty()) return Growth::Nothing;
    // Every other tree is verified as point masses, without a record of draws.
    if (options_.child_rule == ChildRule::Draw && sources_.model && sources_.tables.empty() &&
        options_.shape != TreeShape::Merged)
        return Growth::Drawn;
    if (!options_.shape) {
        if (sources_.tables.size() != 1 || sources_.model) return Growth::Merged;
        shape_source_ = sources_.tables.front().get();
        return Growth::OwnShape;
    }
    switch (*options_.shape) {
        case TreeShape::Merged:
            return Growth::Merged;
        case TreeShape::Chain:
            return Growth::Chain;
        case TreeShape::NGrammys:
            if (sources_.context == nullptr)
                throw RequestError("the tree ngrammys is of the sources context and bigram; add context to --draft");
            return Growth::NGrammys;
        case TreeShape::Cacheback:
            shape_source_ = shape_of("cacheback");
            break;
        case TreeShape::Recycling:
            shape_source_ = shape_of("recycling");
            break;
    }
    return Growth::OwnShape;
}

void SourcesDrafter::load() {
    const auto file = store_->load(fingerprint_);
    if (!file) return;
    try {
        for (const auto& source : sources_.tables)
            if (auto section = file->section(source->name())) source->load(*section);
        if (auto section = file->section(kCalibrationSection)) {
            // Kept for one set of sources; another starts afresh.
            if (section->text() != source_list()) return;
            const auto state = section->f32s();
            section->finish();
            if (!builder_.calibration().restore(state)) section->fail("numbers of another version");
        }
    } catch (const FormatError& error) {
        store_->set_aside(fingerprint_, error.what());
        reset();
    }
}

void SourcesDrafter::save() {
    if (!store_) return;
    tell_rest();
    std::vector<TableSection> sections;
    // What other sources learnt in earlier runs stays.
    if (const auto file = store_->load(fingerprint_))
        for (const std::string& name : file->section_names())
            if (sources_.find(name) == nullptr && name != kCalibrationSection)
                sections.push_back({name, file->section(name)->copy()});
    for (const auto& source : sources_.tables) {
        TableSection section{.name = std::string(source->name()), .fields = {}};
        source->save(section.fields);
        if (!section.fields.empty()) sections.push_back(std::move(section));
    }
    TableSection calibration{.name = std::string(kCalibrationSection), .fields = {}};
    calibration.fields.text(source_list());
    calibration.fields.f32s(builder_.calibration().state());
    sections.push_back(std::move(calibration));
    store_->save(fingerprint_, sections);
}

std::string SourcesDrafter::source_list() const {
    std::string list = fmt::format("{}:", kCalibrationVersion);
    for (const SourceFigures& figures : figures_) list += fmt::format("{},", figures.name);
    return list;
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

// The length that commits most tokens a second where every guess is accepted with the same probability (Leviathan et
// al. 2023, section 3.4).
std::int64_t SourcesDrafter::gamma() const {
    if (options_.gamma) return *options_.gamma;
    // What is drawn decides what comes (E3): nothing measured may enter, or one seed would give several texts.
    if (growth_ == Growth::Drawn || !times_.measured()) return kDefaultGamma;
    const double a_guess = sources_.model ? sources_.model->expand_seconds(1) : 0.0;
    std::int64_t best = 1;
    double best_rate = 0.0;
    double expected = 1.0;
    double reach = 1.0;
    for (std::int64_t gamma = 1; gamma < std::min(times_.max_nodes(), kLongestChain); ++gamma) {
        reach *= chain_acceptance_;
        expected += reach;
        const double rate = expected / (times_.at(gamma + 1) + static_cast<double>(gamma) * a_guess);
        if (rate > best_rate) {
            best_rate = rate;
            best = gamma;
        }
    }
    return best;
}

void SourcesDrafter::grow_chain(TokenTree& tree, const ShapeRequest& request) {
    const std::int64_t length = gamma();
    if (sources_.model && sources_.tables.empty()) {
        propose_chain(tree, request, length, *sources_.model);
    } else if (!sources_.model && sources_.tables.size() == 1) {
        propose_chain(tree, request, length, *sources_.tables.front());
    } else {
        // The likeliest path of the merged tree: nodes stand in it by falling score, so a node's first child is its
        // best.
        scratch_.reset(request.text.back());
        chain_sources_.assign(1, 0);
        builder_.grow(scratch_, {.text = request.text,
                                 .budget = std::max(request.budget, kChainSearch),
                                 .max_depth = std::min(length, request.max_depth),
                                 .noise = &noise_,
                                 .times = nullptr});
        std::int32_t end = 0;
        std::int32_t chain_end = 0;
        for (std::int32_t node = 1; node < scratch_.size() && tree.size() < request.budget; ++node) {
            if (scratch_.parent(node) != end) continue;
            chain_end = tree.add(chain_end, scratch_.token(node));
            end = node;
            std::uint32_t named_by = 0;
            for (const Calibration::Input& input : builder_.words_for(node)) named_by |= 1U << input.source;
            chain_sources_.push_back(named_by);
        }
    }
}

void SourcesDrafter::grow(TokenTree& tree, const ShapeRequest& request) {
    switch (growing_) {
        case Growth::Nothing:
            break;
        case Growth::Merged:
            expected_ = builder_.grow(tree, {.text = request.text,
                                             .budget = request.budget,
                                             .max_depth = request.max_depth,
                                             .noise = &noise_,
                                             .times = options_.adapt_budget && times_.measured() ? &times_ : nullptr,
                                             .seconds_a_token = pace_.seconds_a_token(),
                                             .crew = crew_});
            break;
        case Growth::OwnShape:
            shape_source_->propose_shape(tree, request);
            break;
        case Growth::NGrammys:
            ngrammys_.grow(tree, request, sources_.context->rows(), sources_.bigrams.get());
            break;
        case Growth::Chain:
            grow_chain(tree, request);
            break;
        case Growth::Drawn:
            propose_drawn(
                tree, request,
                {.shape = options_.shape == TreeShape::Chain ? DrawnShape::Chain : DrawnShape::Tree, .gamma = gamma()},
                *sources_.model, drawn_);
            break;
    }
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

// Nodes that cost nothing: up to the budget where it is fixed, else as many as a pass takes along unnoticed.
void SourcesDrafter::use_leftover(TokenTree& tree, ShapeRequest request) {
    if (growing_ != Growth::Merged || !asks_all_tables(crew_)) return;
    if (options_.adapt_budget) {
        if (!times_.measured()) return;
        std::int64_t n = tree.size();
        while (n < request.budget && times_.at(n + 1) <= kFreeNodes * times_.at(tree.size())) ++n;
        request.budget = n;
    }
    if (tree.size() >= request.budget) return;
    for (const auto& source : sources_.tables) source->use_leftover(tree, request);
}

// What a shape of one source offered and got.
void SourcesDrafter::count_shape(const Observation& observation) {
    const TokenTree& tree = *observation.tree;
    std::int64_t offered = 0;
    for (const std::int32_t node : observation.accepted)
        for (std::int32_t child = node + 1; child < tree.size(); ++child) offered += tree.parent(child) == node ? 1 : 0;
    const auto accepted = std::ssize(observation.accepted) - 1;
    if (offered > 0)
        chain_acceptance_ += kAcceptanceRate * (static_cast<double>(accepted) /
                                                    static_cast<double>(accepted + (offered > accepted ? 1 : 0)) -
                                                chain_acceptance_);
    if (growth_ == Growth::Chain && figures_.size() > 1) {
        // A chain's nodes stand in order: those below accepted ones were offered.
        for (std::size_t node = 1; node < chain_sources_.size() && node <= observation.accepted.size(); ++node)
            for (std::size_t source = 0; source < figures_.size(); ++source) {
                if ((chain_sources_[node] >> source & 1U) == 0) continue;
                ++figures_[source].offered;
                if (node < observation.accepted.size()) ++figures_[source].accepted;
            }
        return;
    }
    for (SourceFigures& figures : figures_) {
        const bool takes_part =
            figures_.size() == 1 || (growth_ == Growth::OwnShape && figures.name == shape_source_->name()) ||
            (growth_ == Growth::NGrammys && (figures.name == "context" || figures.name == "bigram"));
        if (!takes_part) continue;
        figures.offered += offered;
        figures.accepted += accepted;
    }
}

// What the tables learn from, and under noise the tree builder, which asks for tokens by name: most are among the best.
LogitNeeds SourcesDrafter::logit_needs() const {
    LogitNeeds needs;
    // A lone source's own tree may give way to the builder's, once passes are timed (propose()).
    const bool may_build = growth_ == Growth::Merged || (growth_ == Growth::OwnShape && !options_.shape);
    if (noise_.present() && may_build) needs = {.n_best = kMostTopLogits, .sum_temperature = temperature_};
    for (const auto& source : sources_.tables) needs = both(needs, source->logit_needs());
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
        figures_[i].seconds += std::chrono::duration<double>(now - before).count();
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

}  // namespace

std::unique_ptr<Drafter> make_drafter(const DraftOptions& options, const DraftTarget& target) {
    return std::make_unique<SourcesDrafter>(options, target);
}

}  // namespace slipstream::draft
