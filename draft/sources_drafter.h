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
    void attach_hidden(const HiddenTail& tail) override;
    [[nodiscard]] const DraftDistributions* distributions() const override {
        return options_.child_rule == ChildRule::Draw ? &drawn_ : nullptr;
    }
    [[nodiscard]] std::vector<SourceFigures> figures() const override;
    [[nodiscard]] std::uint32_t sources_of(TreeNode node) override;
    [[nodiscard]] const BackOff& back_off() const override { return control_.back_off(); }
    void set_sampling(const SamplerOptions& sampling) override;
    void reset() override;
    void save() override;
    [[nodiscard]] std::size_t memory_bytes() const override;

private:
    // How the tree of a pass is grown.
    enum class Growth : std::uint8_t { Nothing, Merged, OwnShape, NGrammys, Chain, Drawn };
    // Accepted fraction of a chain's draft tokens before a measurement.
    static constexpr double kFirstAcceptance = 0.6;

    // Kinds of ranking; each has a calibration of its own. Acceptance under sampling noise says little about acceptance
    // without noise, and the calibration bins of a draft model are numbered by another measure of certainty.
    enum class CalibrationKind : std::uint8_t { Greedy, Noisy, Blind };
    static constexpr std::size_t kCalibrationKinds = 3;

    // State of the running pass.
    struct Pass {
        Growth growth = Growth::Nothing;
        bool guessed = false;  // drafting was tried, even if it found no draft token
        // Growth::Drawn: index in figures_ of the model from whose distribution the children were drawn.
        std::size_t drawn_by = 0;
        double expected = 0.0;  // tokens that the pass is expected to commit; 0: not known
        double draft_seconds = 0.0;
    };
    // State of the chains of one source, or of several together.
    struct Chain {
        TokenTree scratch;  // merged tree of several sources, of which the chain is the best path
        // [nodes of the chain]: sources that proposed each node, bit i for figures_[i].
        std::vector<std::uint32_t> sources;
        double acceptance = kFirstAcceptance;  // recent mean acceptance of a draft token
    };

    // Learns from a verified tree: through builder_ if that grew the tree, else by counting offered and accepted nodes.
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
    bool is_first_pass_ = true;  // of the text: it computes the prompt too, so its time is not measured
    bool filled_ = false;        // the nodes after those that builder_ grew are the window of `lookahead`
    Chain chain_;
    // [sources]: nodes counted for trees that builder_ did not grow, and seconds spent outside builder_.
    std::vector<SourceFigures> figures_;
    // State of the calibration of each CalibrationKind; empty: nothing is known. builder_ has the newer state of the
    // present calibration_kind().
    std::array<std::vector<float>, kCalibrationKinds> kept_calibrations_;
    // By CalibrationKind: true if used here since reset(). save() writes these and keeps the others of the file.
    std::array<bool, kCalibrationKinds> used_calibrations_{};
    std::optional<TableStore> store_;
    std::uint64_t fingerprint_ = 0;
};

}  // namespace slipstream::draft
