#include "tools/options/draft_sources.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/base/text_parts.h"
#include "tools/base/usage_error.h"

namespace slipstream::tools {

namespace {

using draft::SourceKind;
using draft::TreeShape;

constexpr std::int64_t kRecyclingNodes = 81;  // the paper's static tree (Luo et al. 2024, appendix) and node 0
constexpr std::int64_t kNGrammysNodes = 101;  // k = w = 10 (Stewart et al. 2024) and node 0
constexpr std::int64_t kCorpusNodes = 65;     // 64 draft tokens (REST) and node 0

constexpr std::array kAutomatic{SourceKind::Context, SourceKind::Suffix, SourceKind::Recycling, SourceKind::Bigram,
                                SourceKind::Mtp,     SourceKind::Model,  SourceKind::Retrieval};

// Planned sources that this version does not have.
constexpr std::array<std::string_view, 1> kLater{"lowbit"};

SourceKind parse_source(std::string_view name, DraftPlace place, std::string_view where) {
    if (std::find(kLater.begin(), kLater.end(), name) != kLater.end())
        throw UsageError(fmt::format("{}: source '{}' is not in this version yet; known sources: {}", where, name,
                                     known_sources(place)));
    const auto kind = draft::find_source(name);
    if (!kind)
        throw UsageError(fmt::format("{}: unknown source '{}'; known sources: {}", where, name, known_sources(place)));
    if (place == DraftPlace::OnRecording && !needs_tokens_only(*kind))
        throw UsageError(fmt::format("{}: source '{}' requires a model, and a recording has tokens only; use one of {}",
                                     where, name, known_sources(place)));
    return *kind;
}

}  // namespace

std::string known_sources(DraftPlace place) {
    std::vector<std::string_view> names{"none", "auto"};
    for (const SourceKind kind : draft::all_sources())
        if (place == DraftPlace::OnModel || needs_tokens_only(kind)) names.push_back(draft::source_name(kind));
    return fmt::format("{}", fmt::join(names, ", "));
}

std::span<const SourceKind> automatic_sources() {
    return kAutomatic;
}

bool needs_tokens_only(SourceKind kind) {
    switch (kind) {
        case SourceKind::Context:
        case SourceKind::Suffix:
        case SourceKind::Lookup:
        case SourceKind::Cacheback:
        case SourceKind::Corpus:
            return true;
        case SourceKind::Recycling:
        case SourceKind::Bigram:
        case SourceKind::Unigram:
        case SourceKind::Lookahead:
        case SourceKind::Mtp:
        case SourceKind::Model:
        case SourceKind::Retrieval:
            break;
    }
    return false;
}

std::vector<SourceKind> parse_sources(std::string_view list, DraftPlace place, std::string_view where) {
    std::vector<SourceKind> sources;
    for (const std::string_view name : split_list(list)) {
        if (name == "none" || name == "auto")
            throw UsageError(
                fmt::format("{}: '{}' cannot be combined with other sources, found '{}'", where, name, list));
        const SourceKind kind = parse_source(name, place, where);
        if (std::find(sources.begin(), sources.end(), kind) != sources.end())
            throw UsageError(fmt::format("{}: '{}' is named twice in '{}'", where, name, list));
        sources.push_back(kind);
    }
    return sources;
}

std::vector<SourceKind> sources_of(TreeShape shape) {
    switch (shape) {
        case TreeShape::Cacheback:
            return {SourceKind::Cacheback};
        case TreeShape::Recycling:
            return {SourceKind::Recycling};
        case TreeShape::NGrammys:
            return {SourceKind::Context, SourceKind::Bigram};
        case TreeShape::Merged:
        case TreeShape::Chain:
            break;
    }
    return {};
}

std::int64_t own_nodes(const draft::DraftOptions& options) {
    const auto only = [&](SourceKind kind) { return options.sources == std::vector{kind}; };
    const bool own = !options.shape;
    if (options.shape == TreeShape::Cacheback || (own && only(SourceKind::Cacheback)))
        return options.cacheback.tree_tokens;
    if (options.shape == TreeShape::Recycling || (own && only(SourceKind::Recycling))) return kRecyclingNodes;
    if (options.shape == TreeShape::NGrammys ||
        (own && (only(SourceKind::Context) || only(SourceKind::Bigram) || only(SourceKind::Unigram))))
        return kNGrammysNodes;
    if (own && only(SourceKind::Corpus)) return kCorpusNodes;
    return 0;
}

}  // namespace slipstream::tools
