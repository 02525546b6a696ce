// Lists of draft sources as --draft spells them: the sources of `auto`, the sources of the tree of a paper, and the
// number of nodes of that tree.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "draft/drafter.h"

namespace slipstream::tools {

/// Where the sources run: beside a model, or on recorded answers without one (replay).
enum class DraftPlace : std::uint8_t { OnModel, OnRecording };

/// Most nodes of a merged tree with --budget auto; fewer are used if more would not pay.
inline constexpr std::int64_t kAutoBudget = 64;
/// Most nodes of a tree in a replay, where nodes cost nothing: the tree of the Cacheback paper.
inline constexpr std::int64_t kRecordedBudget = 96;

/// Returns the names that --draft accepts, for messages: "none, auto, context, ...".
[[nodiscard]] std::string known_sources(DraftPlace place);

/// Returns the sources of `auto`. The engine leaves out those that cannot be used, such as `model` without a draft
/// model. `cacheback` and `corpus` are not in the list: draft_settings() adds them if one of their options is given.
[[nodiscard]] std::span<const draft::SourceKind> automatic_sources();

/// Returns whether a source learns from token ids only, so that it can be replayed without a model.
[[nodiscard]] bool needs_tokens_only(draft::SourceKind kind);

/// Parses a list such as "context,suffix"; `where` names the option in errors. Throws UsageError if a source is
/// unknown, not in this version, named twice, or needs a model that `place` does not have, and for `none` and `auto`: a
/// list of one of these alone is handled by the caller.
[[nodiscard]] std::vector<draft::SourceKind> parse_sources(std::string_view list, DraftPlace place,
                                                           std::string_view where);

/// Returns the sources that the tree of a paper grows from; empty for shapes that take any sources.
[[nodiscard]] std::vector<draft::SourceKind> sources_of(draft::TreeShape shape);

/// Returns the number of nodes, node 0 included, of the paper's tree of the given shape, or of a source that is alone
/// without a shape; 0 if no paper fixes it.
[[nodiscard]] std::int64_t own_nodes(const draft::DraftOptions& options);

}  // namespace slipstream::tools
