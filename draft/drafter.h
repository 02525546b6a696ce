// The proposer of the generation loop: the sources that were asked for, and the shape of their tree. A table source
// alone grows its own paper's tree; several sources are merged by the tree builder under one budget (README.md,
// "Decisions").
//
// Invariant: with the exact verifier nothing here can change the output, only how many tokens a pass commits.
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
#include "runtime/model/proposing_head.h"
#include "runtime/pass/hidden_tail.h"
#include "runtime/ranks/view_passes.h"
#include "runtime/view/view_builder.h"

namespace slipstream::draft {

/// Kinds of sources, as --draft names them.
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
    Mtp,
    Model,
    Retrieval,
};
/// Returns the name that --draft uses.
[[nodiscard]] std::string_view source_name(SourceKind kind);
/// Returns the source with this name; nothing if there is none.
[[nodiscard]] std::optional<SourceKind> find_source(std::string_view name);
/// Returns all kinds, in the order of SourceKind.
[[nodiscard]] std::span<const SourceKind> all_sources();

/// Shapes of a tree: merged by the tree builder, the tree of a paper, or a chain.
enum class TreeShape : std::uint8_t { Merged, Cacheback, Recycling, NGrammys, Chain };
/// Returns the shape that --tree calls `name`; nothing if there is none.
[[nodiscard]] std::optional<TreeShape> find_tree_shape(std::string_view name);

/// Whether sources rank their proposals by probability and the sampling noise of the target's seed (Aware: the tokens
/// that the target is likely to draw come first), or by probability alone (Blind).
enum class NoiseRanking : std::uint8_t { Aware, Blind };

/// Whether the children of a draft model's nodes are its best tokens (Pick), or drawn from its distribution, as
/// classical speculative sampling requires (Draw; distribution-exact sampling, E3, rejection.h). Draw only works with
/// `model` and `retrieval`: `model` or `retrieval` alone grows chains of gamma tokens or trees of a fixed shape; both
/// together grow chains that one draws and the other checks (papers/two_model_chain.h).
enum class ChildRule : std::uint8_t { Pick, Draw };

/// What to draft with, as the user chose it.
struct DraftOptions {
    std::vector<SourceKind> sources;  // sources in the order asked for; empty: no draft tokens
    std::optional<TreeShape> shape;   // nothing: the own tree of a lone table source, else Merged
    std::int64_t max_budget = 64;     // most nodes of a tree, node 0 included
    bool adapt_budget = true;         // fewer nodes if more would not pay (--budget auto)
    std::int64_t lookup_ngram = 3;    // most tokens of the n-gram that prompt lookup matches
    /// Draft tokens of a chain; nothing: adapted to the measured acceptance, but 6 if the chain is drawn
    /// (ChildRule::Draw).
    std::optional<std::int64_t> gamma;
    CachebackOptions cacheback;
    std::optional<std::filesystem::path> frozen_table;  // file of Cacheback's frozen table
    /// File of the source `corpus`; required if that is among the sources.
    std::optional<std::filesystem::path> corpus;
    std::optional<std::filesystem::path> tables;  // folder in which learnt tables are kept; nothing: in memory only
    ViewOptions view;              // how the view of the target's KV is built, if `retrieval` is a source
    std::size_t window_bytes = 0;  // most bytes of a draft model's KV; 0: a window of 240 tokens
    NoiseRanking noise_ranking = NoiseRanking::Aware;
    ChildRule child_rule = ChildRule::Pick;

    /// Returns true if `kind` is among the sources.
    [[nodiscard]] bool has(SourceKind kind) const;
};

/// What the drafter is made for. All pointers must outlive it. A null pointer rules out the sources that need it.
struct DraftContext {
    std::int64_t vocab = 0;
    SamplerOptions sampling;            // options of the target's sampler; the sampling noise has the same seed
    const ModelFiles* files = nullptr;  // files of the target, whose fingerprint names the tables on disk
    /// Fingerprint of the target's tokenizer, with which a corpus and a frozen table must be built.
    std::uint64_t tokenizer_fingerprint = 0;
    /// The target, from which the tables of bigram and unigram are computed; null: these tables must be on disk.
    const Model* model = nullptr;
    const ProposingHead* head = nullptr;   // of the target's files, loaded; for the source `mtp`
    const Model* draft_model = nullptr;    // loaded; its vocabulary must have been checked (check_draft_vocabulary)
    std::int64_t text_tokens = 0;          // tokens of the longest sequence to draft for; 0: not known
    PlannedSeconds planned_seconds;        // time of a pass of the target; empty: learnt from passes
    PlannedSeconds draft_planned_seconds;  // time of a pass of the draft model; empty: learnt from passes
    PlannedSeconds head_planned_seconds;   // time of a pass of the head; empty: learnt from passes
    /// Reports work that takes long (building a table): what it is, the work done, the work in all. May throw to
    /// cancel. May be empty.
    std::function<void(std::string_view, double, double)> on_progress;
    /// Gets one line for the user, such as: a damaged table was set aside. May be empty.
    std::function<void(std::string_view)> on_note;
};

/// Counts of one source since the drafter was made.
struct SourceFigures {
    std::string_view name;
    /// Draft nodes of this source whose parent was accepted. A node that several sources proposed counts for each.
    std::int64_t offered = 0;
    std::int64_t accepted = 0;                          // number of the offered nodes that were accepted
    std::int64_t parents = 0;                           // accepted nodes below which it offered one or more
    double seconds = 0.0;                               // seconds spent in the source
    std::optional<std::int64_t> passes = std::nullopt;  // number of the source's own passes; nothing for tables
};

/// A proposer of draft tokens, with its measurements. Not thread-safe.
class Drafter : public Proposer {
public:
    /// Returns the curve of the target's pass times. The drafter owns it and adds every pass to it.
    [[nodiscard]] virtual PassCurve& pass_curve() = 0;
    /// Gives `retrieval`, if it is among the sources, the passes with which it drafts from now on. Call after the
    /// target is loaded with all of its weights resident. `passes` must outlive the drafter. `planned_seconds(n,
    /// slots)`: seconds of a pass over n tokens with `slots` KV slots in the view.
    virtual void attach_view(ViewPasses& passes, PlannedSeconds planned_seconds) = 0;
    /// Gives `mtp`, if it is among the sources, the hidden states of the target's last positions, from which it drafts
    /// from now on. `tail` must follow the target's passes and outlive the drafter.
    virtual void attach_hidden(const HiddenTail& tail) = 0;
    /// Returns the distributions from which children were drawn under ChildRule::Draw; null under ChildRule::Pick.
    [[nodiscard]] virtual const DraftDistributions* distributions() const = 0;
    /// Returns the counts of each source: tables, then models, each in the order asked for, `retrieval` last.
    [[nodiscard]] virtual std::vector<SourceFigures> figures() const = 0;
    /// Returns the sources that proposed `node` of the last proposal's tree, bit i for the i-th of figures(). 0: node
    /// 0, or a node of which no source is known. Call before observe() and the next proposal.
    [[nodiscard]] virtual std::uint32_t sources_of(TreeNode node) = 0;
    /// Returns how often drafting was paused because it was slower than plain decoding, and by how much before the last
    /// pause. Valid as long as the drafter; later passes change it.
    [[nodiscard]] virtual const BackOff& back_off() const = 0;
    /// Drafts for other sampling options of the target from now on; `sampling` must be valid (Sampler). What was learnt
    /// and the figures stay. If more than the seed differs, whether drafting pays is judged anew. Call only between
    /// sequences.
    virtual void set_sampling(const SamplerOptions& sampling) = 0;
    /// Forgets everything learnt, also what was loaded from tables on disk, but not the times of passes; the files
    /// stay. Call only between sequences, and call observe() with the whole next sequence before the next propose().
    virtual void reset() = 0;
    /// Writes what was learnt to options.tables; does nothing if there is no such folder. Throws IoError.
    virtual void save() = 0;
    /// Returns the bytes of host memory of all table sources, without parts whose size is fixed.
    [[nodiscard]] virtual std::size_t memory_bytes() const = 0;
};

/// Makes the drafter and loads its tables. Throws RequestError if a source lacks what it needs, IoError and FormatError
/// for files that were named, OutOfBudget, and what target.on_progress throws.
[[nodiscard]] std::unique_ptr<Drafter> make_drafter(const DraftOptions& options, const DraftContext& target);

}  // namespace slipstream::draft
