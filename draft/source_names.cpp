// Names of sources and tree shapes, as the command line spells them, and DraftOptions::has().
#include <algorithm>
#include <array>
#include <utility>

#include "draft/drafter.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr std::array kSourceNames = {
    std::pair{SourceKind::Context, std::string_view("context")},
    std::pair{SourceKind::Suffix, std::string_view("suffix")},
    std::pair{SourceKind::Lookup, std::string_view("lookup")},
    std::pair{SourceKind::Cacheback, std::string_view("cacheback")},
    std::pair{SourceKind::Recycling, std::string_view("recycling")},
    std::pair{SourceKind::Bigram, std::string_view("bigram")},
    std::pair{SourceKind::Unigram, std::string_view("unigram")},
    std::pair{SourceKind::Corpus, std::string_view("corpus")},
    std::pair{SourceKind::Lookahead, std::string_view("lookahead")},
    std::pair{SourceKind::Mtp, std::string_view("mtp")},
    std::pair{SourceKind::Model, std::string_view("model")},
    std::pair{SourceKind::Retrieval, std::string_view("retrieval")},
};

constexpr std::array kShapeNames = {
    std::pair{TreeShape::Merged, std::string_view("merged")},
    std::pair{TreeShape::Cacheback, std::string_view("cacheback")},
    std::pair{TreeShape::Recycling, std::string_view("recycling")},
    std::pair{TreeShape::NGrammys, std::string_view("ngrammys")},
    std::pair{TreeShape::Chain, std::string_view("chain")},
};

template <typename Table>
auto find_by_name(const Table& table, std::string_view name) {
    const auto found = std::ranges::find(table, name, [](const auto& entry) { return entry.second; });
    return found == table.end() ? std::nullopt : std::optional(found->first);
}

}  // namespace

std::string_view source_name(SourceKind kind) {
    const auto found = std::ranges::find(kSourceNames, kind, [](const auto& entry) { return entry.first; });
    CHECK(found != kSourceNames.end(), "source {}", static_cast<int>(kind));
    return found->second;
}

std::optional<SourceKind> find_source(std::string_view name) {
    return find_by_name(kSourceNames, name);
}

std::optional<TreeShape> find_tree_shape(std::string_view name) {
    return find_by_name(kShapeNames, name);
}

std::span<const SourceKind> all_sources() {
    static constexpr auto kinds = [] {
        std::array<SourceKind, kSourceNames.size()> out{};
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = kSourceNames[i].first;
        return out;
    }();
    return kinds;
}

bool DraftOptions::has(SourceKind kind) const {
    return std::ranges::find(sources, kind) != sources.end();
}

}  // namespace slipstream::draft
