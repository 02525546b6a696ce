// The drafter that make_drafter() returns (drafter.h).
//
// drafter.cpp proposes and learns, pass by pass; drafter_shapes.cpp grows the requested tree; drafter_tables.cpp keeps
// on disk what was learnt.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "draft/control/draft_control.h"
#include "draft/drafter.h"
#include "draft/drawn_tree.h"
#include "draft/paper_tree.h"
#include "draft/papers/two_model_chain.h"
#include "draft/path_noise.h"
#include "draft/source_set.h"
#include "draft/sources/table_source.h"
#include "draft/tables/table_store.h"
#include "draft/tree/tree_builder.h"

namespace slipstream::draft {

class SourcesDrafter final : public Drafter {
public:
    SourcesDrafter(const DraftOptions& options, const DraftContext& target);

    [[nodiscard]] LogitRequest logit_request() const override;
    void propose(TokenTree& tree, const ProposalLimits& limits) override;
    void observe(const Observation& observation) override;

    [[nodiscard]] PassCurve& pass_curve() override { return control_.curve(); }
    void attach_view(ViewPasses& passes, PlannedSeconds planned_seconds) override;
    [[nodiscard]] const DraftDistributions* distributions() const override {
        return options_.child_rule == ChildRule::Draw ? &drawn_ : nullptr;
    }
    [[nodiscard]] std::vector<SourceFigures> figures() const override;
    [[nodiscard]] std::uint32_t sources_of(std::int32_t node) override;
    [[nodiscard]] const BackOff& back_off() const override { return control_.back_off(); }
    void set_sampling(const SamplerOptions& sampling) override;
    void reset() override;
    void save() override;
    [[nodiscard]] std::size_t memory_bytes() const override;

private:
    // How the tree of a pass is grown.
    enum class Growth : std::uint8_t { Nothing, Merged, OwnShape, NGrammys, Chain, Drawn };
    static constexpr double kFirstAcceptance = 0.6;  // assumed acceptance of a chain's draft tokens

    // Acceptance under noise says little about acceptance without it, and the bins of a draft model mean other things:
    // so each kind of ranking has a calibration of its own.
    enum class CalibrationKind : std::uint8_t { Greedy, Noisy, Blind };
    static constexpr std::size_t kCalibrationKinds = 3;

    // State of the running pass.
    struct Pass {
        Growth growth = Growth::Nothing;
        bool guessed = false;  // drafting was tried
        // Growth::Drawn: index in figures_ of the model from whose distribution the children were drawn.
        std::size_t drawn_by = 0;
        double expected = 0.0;  // tokens that the pass is expected to commit; 0: not known
        double draft_seconds = 0.0;
    };
    // State of chains, of one source or of several together.
    struct Chain {
        TokenTree scratch;                     // merged tree of several sources, of which the chain is the best path
        std::vector<std::uint32_t> sources;    // [nodes of that chain]: sources that proposed each node, a bit each
        double acceptance = kFirstAcceptance;  // recent mean acceptance of a draft token
    };

    // Learns from a verified tree: by the tree builder, or by counting.
    void learn(const Observation& observation);
    [[nodiscard]] bool is_hierarchy() const { return sources_.models.size() == 2 && sources_.tables.empty(); }
    [[nodiscard]] bool lone_model() const { return sources_.models.size() == 1 && sources_.tables.empty(); }

    [[nodiscard]] Growth choose_growth();
    [[nodiscard]] std::size_t shape_of(std::string_view name) const;
    void grow(TokenTree& tree, const ShapeRequest& request);
    void grow_chain(TokenTree& tree, const ShapeRequest& request);
    [[nodiscard]] std::int64_t gamma() const;
    void fill_unused_nodes(TokenTree& tree, ShapeRequest request);
    void count_shape(const Observation& observation);
    [[nodiscard]] bool takes_part(std::size_t source) const;

    void load();
    [[nodiscard]] PathNoise known_noise() const;
    [[nodiscard]] CalibrationKind calibration_kind() const;
    void keep_calibration();
    void use_calibration();
    [[nodiscard]] std::string source_list() const;

    DraftOptions options_;
    SamplerOptions sampling_;  // of the target
    SourceSet sources_;
    PathNoise noise_;
    DraftControl control_;
    TreeBuilder builder_;
    DrawnTree drawn_;
    TwoModelChain two_model_chain_;
    std::size_t shape_source_ = 0;     // index of the table source whose tree is grown if growth_ is OwnShape
    Growth growth_ = Growth::Nothing;  // requested; a pass may use another one (Pass::growth)
    Pass pass_;
    bool filled_ = false;  // the nodes past those that builder_ grew are the window of `lookahead`
    Chain chain_;
    std::vector<SourceFigures> figures_;  // [sources]: counts of shapes, seconds of observe()
    // By kind; empty: nothing known. builder_ has the newer state of calibration_kind().
    std::array<std::vector<float>, kCalibrationKinds> kept_calibrations_;
    std::array<bool, kCalibrationKinds> used_calibrations_{};  // by kind: in use here since reset(), so saved from here
    std::optional<TableStore> store_;
    std::uint64_t fingerprint_ = 0;
};

}  // namespace slipstream::draft
