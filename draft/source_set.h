// Makes the sources that were asked for. Their learnt tables are loaded by SourcesDrafter.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "draft/drafter.h"
#include "draft/models/model_source.h"
#include "draft/models/mtp_source.h"
#include "draft/models/self_draft_model.h"
#include "draft/paper_tree.h"
#include "draft/papers/lookahead.h"
#include "draft/sources/model_bigram.h"
#include "draft/sources/table_source.h"

namespace slipstream::draft {

/// All sources of one drafter, in the order asked for. Sources that run passes of their own are kept apart.
struct SourceSet {
    std::vector<std::unique_ptr<TableSource>> tables;
    std::vector<PaperTree*> paper_trees;               // [tables]: the same sources; not owned
    std::vector<std::unique_ptr<ModelSource>> models;  // cheap to expensive: `mtp` first, `retrieval` last
    ModelBigram* bigrams = nullptr;                    // the bigram source in `tables`; null: not asked for
    Lookahead* lookahead = nullptr;                    // the lookahead source in `tables`; null: not asked for
    MtpSource* head = nullptr;                         // the source `mtp` in `models`; null: not asked for
    SelfDraftModel* view = nullptr;                    // the view source in `models`; null: not asked for

    /// table_list() and model_list() return pointers to all sources of `tables` and `models`, which the set owns.
    [[nodiscard]] std::vector<TableSource*> table_list() const;
    [[nodiscard]] std::vector<ModelSource*> model_list() const;
    /// Returns the index in `tables` of the source with this name; nothing if it was not asked for.
    [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const;
};

/// Lower bound of model_nodes(), in nodes of a tree: models can be asked about at least this many, however small the
/// tree budget is. If a vocabulary is so large that the logits of this many nodes exceed 128 MiB, the bound is as many
/// as fit in 128 MiB, but at least kLeastModelNodes / 2.
inline constexpr std::int64_t kLeastModelNodes = 64;
/// Returns the most nodes of a tree that models can be asked about, node 0 included: twice the budget, since not all of
/// them are kept, and at least kLeastModelNodes. If their logits would exceed 128 MiB there are fewer, but at least
/// kLeastModelNodes / 2.
[[nodiscard]] std::int64_t model_nodes(const DraftOptions& options, std::int64_t vocab);

/// Returns the most positions in the KV cache of the MTP head: as many as options.window_bytes hold, at most 8,192
/// and those of a text of `text_tokens` tokens (0: not known).
[[nodiscard]] std::int64_t head_slots(const DraftOptions& options, const ModelConfig& head, DType kv_dtype,
                                      std::int64_t text_tokens);

/// Returns `options` without the sources that cannot serve the target's vocabulary; target.on_note gets a line for
/// each. Throws RequestError if the requested tree is that of such a source.
[[nodiscard]] DraftOptions without_unusable_sources(DraftOptions options, const DraftContext& target);

/// Makes the sources. Computes the model's n-grams if they are asked for and not on disk. Throws RequestError if a
/// source lacks what it needs, IoError and FormatError for files that were named, OutOfBudget, and what
/// target.on_progress throws.
[[nodiscard]] SourceSet make_sources(const DraftOptions& options, const DraftContext& target);

}  // namespace slipstream::draft
