// The proposer of the generation loop: all sources that were asked for, and the shape of their tree. Alone, a source
// grows its own paper's tree; together they are merged by the tree builder under one budget (README.md, "Why").
//
// Invariant: nothing here can change the output, only how many tokens a pass commits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "draft/control/draft_control.h"
#include "draft/control/pass_curve.h"
#include "draft/rejection.h"
#include "draft/tables/cacheback_options.h"
#include "runtime/formats/model_files.h"
#include "runtime/loop/proposer.h"
#include "runtime/loop/sampling/sampler.h"
#include "runtime/model/model.h"
#include "runtime/ranks/view_passes.h"
#include "runtime/view/view_builder.h"

namespace slipstream::draft {

enum class SourceKind : std::uint8_t {
    Context,
    Suffix,
    Lookup,
    Cacheback,
    Recycling,
    Bigram,
    Unigram,
    Corpus,
    Lookahead,
    Model,
    Retrieval,
};
/// As --draft spells it.
[[nodiscard]] std::string_view source_name(SourceKind kind);
[[nodiscard]] std::optional<SourceKind> find_source(std::string_view name);
[[nodiscard]] std::span<const SourceKind> all_sources();

enum class TreeShape : std::uint8_t { Merged, Cacheback, Recycling, NGrammys, Chain };
/// As --tree spells it.
[[nodiscard]] std::optional<TreeShape> find_tree_shape(std::string_view name);

/// Whether guesses are ranked by probability and the noise that is known, or by probability alone.
enum class NoiseRanking : std::uint8_t { Aware, Blind };

/// Whether a draft model's children are picked, best first, or drawn from its distribution as classical speculative
/// sampling wants them (E3, rejection.h). Drawing is for models alone: `model` or `retrieval`, chains of gamma and
/// trees of a fixed shape; both, chains that one draws and the other checks (papers/two_model_chain.h).
enum class ChildRule : std::uint8_t { Pick, Draw };

struct DraftOptions {
    std::vector<SourceKind> sources;    // in the order asked for; none: guesses nothing
    std::optional<TreeShape> shape;     // nothing: a lone source's own, else Merged
    std::int64_t max_budget = 64;       // most nodes of a tree, node 0 included
    bool adapt_budget = true;           // fewer nodes where more would not pay (--budget auto)
    std::int64_t lookup_ngram = 3;      // longest n-gram of prompt lookup
    std::optional<std::int64_t> gamma;  // length of chains; nothing: adaptive
    CachebackOptions cacheback;
    std::optional<std::filesystem::path> frozen_table;  // of Cacheback
    std::optional<std::filesystem::path> corpus;
    std::optional<std::filesystem::path> tables;  // folder in which learnt tables persist; nothing: memory only
    ViewOptions view;                             // of the target's KV, where `retrieval` is among the sources
    std::size_t window_bytes = 0;                 // that a draft model's KV may take; 0: a window of 240 tokens
    NoiseRanking noise_ranking = NoiseRanking::Aware;
    ChildRule child_rule = ChildRule::Pick;

    [[nodiscard]] bool has(SourceKind kind) const;
};

/// What the guesses are for. Pointers outlive the drafter; those that are null rule out the sources that need them.
struct DraftContext {
    std::int64_t vocab = 0;
    SamplerOptions sampling;                  // of the target; its seed is the noise's
    const ModelFiles* files = nullptr;        // of the target: what tables on disk are keyed by
    std::uint64_t tokenizer_fingerprint = 0;  // what stores that are built from texts are checked against
    const Model* model = nullptr;             // the target: bigram and unigram are made out of it; null: they must be
                                              // on disk
    const Model* draft_model = nullptr;    // the small model, loaded, its vocabulary checked (check_draft_vocabulary)
    std::int64_t text_tokens = 0;          // of the longest text; 0: nobody knows
    PlannedSeconds planned_seconds;        // of the target; empty: passes tell by and by
    PlannedSeconds draft_planned_seconds;  // of the draft model
    /// What is going on that takes time (building a table): what, done, in all. May throw to give up.
    std::function<void(std::string_view, double, double)> on_progress;
    /// What a user should know, one line: a damaged table was set aside.
    std::function<void(std::string_view)> on_note;
};

struct SourceFigures {
    std::string_view name;
    std::int64_t offered = 0;  // nodes whose parent was accepted; a merged node counts for all its proposers
    std::int64_t accepted = 0;
    double seconds = 0.0;
    std::optional<std::int64_t> passes = std::nullopt;  // of sources that make passes of their own
};

class Drafter : public Proposer {
public:
    /// What passes of the target take.
    [[nodiscard]] virtual PassCurve& pass_curve() = 0;
    /// The target is loaded, all of its weights resident: `retrieval`, where it is among the sources, guesses by
    /// `passes` from now on, which outlive the drafter. `planned_seconds`: of a pass behind so many slots.
    virtual void attach_view(ViewPasses& passes, PlannedSeconds planned_seconds) = 0;
    /// What children were drawn from under ChildRule::Draw; null where all are point masses.
    [[nodiscard]] virtual const DraftDistributions* distributions() const = 0;
    [[nodiscard]] virtual std::vector<SourceFigures> figures() const = 0;
    [[nodiscard]] virtual const BackOff& back_off() const = 0;
    /// Drafts for other sampling options of the target from now on; `sampling` must be valid (Sampler). What was learnt
    /// and the figures stay. If more than the seed differs, drafting is judged anew. Between texts, as reset().
    virtual void set_sampling(const SamplerOptions& sampling) = 0;
    /// Forgets everything learnt, as a new text's first pass finds it without tables of earlier runs. Between texts: an
    /// observation of the whole text must come before the next proposal.
    virtual void reset() = 0;
    /// Writes what was learnt to options.tables; does nothing where there is none. Throws IoError.
    virtual void save() = 0;
    /// Bytes of all tables, as far as they grow.
    [[nodiscard]] virtual std::size_t memory_bytes() const = 0;
};

/// Throws RequestError where a source lacks what it needs, IoError and FormatError of files that were named.
[[nodiscard]] std::unique_ptr<Drafter> make_drafter(const DraftOptions& options, const DraftContext& target);

}  // namespace slipstream::draft
