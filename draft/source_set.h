// The sources that were asked for, made and filled with what earlier runs learnt.
#pragma once

#include <memory>
#include <vector>

#include "draft/drafter.h"
#include "draft/models/model_source.h"
#include "draft/models/self_draft_model.h"
#include "draft/sources/model_bigram.h"
#include "draft/sources/table_source.h"

namespace slipstream::draft {

/// All sources of one drafter, in the order asked for; those with passes of their own apart.
struct SourceSet {
    std::vector<std::unique_ptr<TableSource>> tables;
    std::vector<std::unique_ptr<ModelSource>> models;  // cheap to dear
    ModelBigram* bigrams = nullptr;                    // the one among `tables`; null: not asked for
    SelfDraftModel* view = nullptr;                    // the one among `models`; null: not asked for

    [[nodiscard]] std::vector<TableSource*> table_list() const;
    [[nodiscard]] std::vector<ModelSource*> model_list() const;
    /// The table source of that name; null where it was not asked for.
    [[nodiscard]] TableSource* find(std::string_view name) const;
};

/// Nodes of a tree that models are asked about at the least, where a vocabulary does not make them too dear.
inline constexpr std::int64_t kLeastModelNodes = 64;
/// Nodes of a tree that models are asked about, node 0 included: more than are kept.
[[nodiscard]] std::int64_t model_nodes(const DraftOptions& options, std::int64_t vocab);

/// Returns `options` without the sources that cannot serve the target's vocabulary; target.on_note gets a line for
/// each. Throws RequestError if the tree asked for is that of such a source.
[[nodiscard]] DraftOptions without_unusable_sources(DraftOptions options, const DraftContext& target);

/// Throws RequestError where a source lacks what it needs, IoError and FormatError of files that were named, and what
/// target.on_progress throws. Builds the model's own n-grams where they are asked for and not on disk.
[[nodiscard]] SourceSet make_sources(const DraftOptions& options, const DraftContext& target);

}  // namespace slipstream::draft
