// Lists of sources as --draft spells them: what `auto` stands for, what a paper's tree grows from, and how many nodes
// it takes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "draft/drafter.h"

namespace slipstream::tools {

/// Where the sources are to run.
enum class DraftPlace : std::uint8_t { OnModel, OnRecording };

/// Most nodes of a merged tree under --budget auto, which takes fewer where more would not pay.
inline constexpr std::int64_t kAutoBudget = 64;
/// The same of a replay, where nodes cost nothing: Cacheback's own.
inline constexpr std::int64_t kRecordedBudget = 96;

/// What --draft takes there: "none, auto, context, ...".
[[nodiscard]] std::string known_sources(DraftPlace place);

/// What `auto` stands for: sources that pay together. `model` among them counts only where there is a draft model;
/// `cacheback` and `corpus` join where an option of theirs is given.
[[nodiscard]] std::span<const draft::SourceKind> automatic_sources();

/// Whether a source learns from token ids alone, so that it can be replayed without a model.
[[nodiscard]] bool needs_tokens_only(draft::SourceKind kind);

/// "context,suffix" -> both. `where` is for messages. Throws UsageError: unknown, of a later version, named twice, in
/// need of a model, or `none` and `auto` beside others.
[[nodiscard]] std::vector<draft::SourceKind> parse_sources(std::string_view list, DraftPlace place,
                                                           std::string_view where);

/// The sources that a paper's tree is grown from; none for shapes of any sources.
[[nodiscard]] std::vector<draft::SourceKind> sources_of(draft::TreeShape shape);

/// Nodes of the tree that the paper of a shape, or of a lone source, uses, node 0 included; 0 where none is fixed.
[[nodiscard]] std::int64_t own_nodes(const draft::DraftOptions& options);

}  // namespace slipstream::tools
