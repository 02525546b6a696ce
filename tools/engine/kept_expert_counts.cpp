#include "tools/engine/kept_expert_counts.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/formats/model_fingerprint.h"

namespace slipstream::tools {

namespace {

constexpr std::uint32_t kVersion = 2;
constexpr std::uint32_t kVersionWithoutDistinct = 1;
constexpr std::uint32_t kMostLayers = 1U << 16;                // no model has more
constexpr std::uint64_t kMostExperts = 1U << 16;               // of a layer
constexpr std::uint64_t kMostTokens = std::uint64_t{1} << 40;  // of the groups of a size

std::int64_t n_experts_of(const LayerConfig& layer) {
    return layer.feed_forward.experts.n_experts;
}

// Returns the sums of a layer; no value if they cannot be.
std::optional<DistinctExperts> read_distinct(draft::TableReader& section) {
    if (section.u32() != DistinctExperts::kSizes) return std::nullopt;
    std::array<DistinctSum, DistinctExperts::kSizes> sums;
    for (DistinctSum& sum : sums) {
        sum.groups = section.u64();
        sum.tokens = section.u64();
        sum.distinct = section.u64();
        if (sum.tokens > kMostTokens || sum.groups > sum.tokens || (sum.groups == 0 && sum.tokens > 0) ||
            sum.distinct > kMostExperts * sum.groups)
            return std::nullopt;
    }
    return DistinctExperts(sums);
}

}  // namespace

draft::TableSection expert_counts_section(std::uint64_t fingerprint, std::span<const ExpertCountsOfLayer> layers) {
    draft::TableSection section{.name = std::string(kExpertCountsKind), .fields = {}};
    section.fields.u32(kVersion);
    section.fields.u64(fingerprint);
    section.fields.u32(static_cast<std::uint32_t>(layers.size()));
    for (const ExpertCountsOfLayer& layer : layers) {
        section.fields.u64(layer.use.n_tokens());
        section.fields.f32s(layer.use.counts().counts());
        section.fields.f32s(layer.use.ranks());
        section.fields.u32(DistinctExperts::kSizes);
        for (const DistinctSum& sum : layer.distinct.sums())
            for (const std::uint64_t n : {sum.groups, sum.tokens, sum.distinct}) section.fields.u64(n);
    }
    return section;
}

std::uint64_t ReadExpertCounts::n_tokens() const {
    std::uint64_t most = 0;
    for (const ExpertCountsOfLayer& layer : layers)
        most = std::max({most, layer.use.n_tokens(), layer.distinct.sums()[1].tokens});
    return most;
}

ReadExpertCounts read_expert_counts(draft::TableReader section) {
    const std::uint32_t version = section.u32();
    if (version != kVersion && version != kVersionWithoutDistinct)
        section.fail(fmt::format("counts of version {}, this program reads {} and {}", version, kVersionWithoutDistinct,
                                 kVersion));
    ReadExpertCounts read{.fingerprint = section.u64(), .layers = {}};
    const std::uint32_t n_layers = section.u32();
    if (n_layers > kMostLayers) section.fail(fmt::format("counts of {} layers", n_layers));
    for (std::uint32_t layer = 0; layer < n_layers; ++layer) {
        const std::uint64_t n_tokens = section.u64();
        const std::span<const float> counts = section.f32s();
        const std::span<const float> ranks = section.f32s();
        std::optional<ExpertUse> use;
        if (counts.size() <= kMostExperts)
            use = ExpertUse::restored(static_cast<std::int64_t>(counts.size()), counts, ranks, n_tokens);
        std::optional<DistinctExperts> distinct = DistinctExperts();
        if (version == kVersion) distinct = read_distinct(section);
        if (!use || !distinct) section.fail(fmt::format("the counts of layer {} are damaged", layer));
        read.layers.push_back({.use = std::move(*use), .distinct = *distinct});
    }
    section.finish();
    return read;
}

KeptExpertCounts::KeptExpertCounts(const std::filesystem::path& folder, const ModelFiles& files,
                                   std::function<void(std::string_view)> on_note)
    : config_(&files.config()),
      fingerprint_(model_fingerprint(files)),
      on_note_(std::move(on_note)),
      store_({.folder = folder, .on_note = on_note_}) {}

std::vector<ExpertCountsOfLayer> KeptExpertCounts::read() const {
    const std::optional<draft::TableFile> file = store_.load(fingerprint_, kExpertCountsKind);
    if (!file) return {};
    try {
        auto section = file->section(kExpertCountsKind);
        if (!section) throw FormatError(fmt::format("{}: no counts of experts in it", file->path().string()));
        ReadExpertCounts read = read_expert_counts(*section);
        if (read.fingerprint != fingerprint_) section->fail("counts of another model");
        if (std::ssize(read.layers) != config_->n_layers())
            section->fail(
                fmt::format("counts of {} layers, the model has {}", read.layers.size(), config_->n_layers()));
        for (std::size_t layer = 0; layer < read.layers.size(); ++layer) {
            const std::int64_t n = read.layers[layer].use.n_experts();
            const std::int64_t of_model = n_experts_of(config_->layers[layer]);
            if (n != 0 && n != of_model)
                section->fail(fmt::format("counts of {} experts in layer {}, the model has {}", n, layer, of_model));
            for (const DistinctSum& sum : read.layers[layer].distinct.sums())
                if (sum.distinct > static_cast<std::uint64_t>(of_model) * sum.groups)
                    section->fail(fmt::format("more distinct experts than layer {} has", layer));
        }
        return std::move(read.layers);
    } catch (const FormatError& error) {
        store_.set_aside(fingerprint_, error.what(), kExpertCountsKind);
        return {};
    }
}

void KeptExpertCounts::write(std::span<const ExpertUse> use, std::span<const DistinctExperts> distinct,
                             std::span<const ExpertCountsOfLayer> before) const {
    std::vector<ExpertCountsOfLayer> all(config_->layers.size());
    for (std::size_t layer = 0; layer < all.size(); ++layer) {
        if (layer < before.size()) all[layer] = before[layer];
        if (layer < use.size() && use[layer].n_experts() > 0) all[layer].use = use[layer];
        if (layer < distinct.size()) all[layer].distinct += distinct[layer];
        all[layer].distinct = all[layer].distinct.limited();
    }
    try {
        store_.save(fingerprint_, std::vector{expert_counts_section(fingerprint_, all)}, kExpertCountsKind);
    } catch (const IoError& error) {
        on_note_(fmt::format("the counts of experts cannot be saved: {}", error.what()));
    }
}

std::vector<CountedExperts> counted_experts(std::span<const ExpertCountsOfLayer> layers) {
    std::vector<CountedExperts> counted;
    bool are_known = false;
    for (const ExpertCountsOfLayer& layer : layers) {
        const CountedExperts& last =
            counted.emplace_back(CountedExperts{.hits = layer.use.hits(), .distinct = layer.distinct.points()});
        are_known = are_known || !last.hits.empty() || !last.distinct.empty();
    }
    if (!are_known) counted.clear();
    return counted;
}

}  // namespace slipstream::tools
