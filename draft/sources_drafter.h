// What drafter.h makes: sources by name, the tree that was asked for, and what is kept of them.
//
// Three files: drafter.cpp guesses and learns, pass by pass; drafter_shapes.cpp grows the tree that was asked for;
// drafter_tables.cpp keeps what was learnt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "draft/control/crew_choice.h"
#include "draft/control/guess_switch.h"
#include "draft/control/missed_text.h"
#include "draft/control/pace.h"
#include "draft/drafter.h"
#include "draft/drawn_tree.h"
#include "draft/papers/ngrammys_shape.h"
#include "draft/source_set.h"
#include "draft/sources/source.h"
#include "draft/tables/table_store.h"
#include "draft/tree/path_noise.h"
#include "draft/tree/tree_builder.h"

namespace slipstream::draft {

class SourcesDrafter final : public Drafter {
public:
    SourcesDrafter(const DraftOptions& options, const DraftTarget& target);

    [[nodiscard]] LogitRequest logit_request() const override;
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
    static constexpr double kFirstAcceptance = 0.6;     // of a chain's guesses

    void learn(const Observation& observation);
    void tell(Weight weight, const Observation& observation);
    void tell_rest();
    [[nodiscard]] double model_seconds() const;
    void judge(const Observation& observation, double seconds);

    [[nodiscard]] Growth choose_growth();
    [[nodiscard]] Source* shape_of(std::string_view name) const;
    void grow(TokenTree& tree, const ShapeRequest& request);
    void grow_chain(TokenTree& tree, const ShapeRequest& request);
    [[nodiscard]] std::int64_t gamma() const;
    void use_leftover(TokenTree& tree, ShapeRequest request);
    void count_shape(const Observation& observation);

    void load();
    [[nodiscard]] std::string_view calibration_section() const;
    [[nodiscard]] std::string source_list() const;

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

}  // namespace slipstream::draft
