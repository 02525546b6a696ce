#include "tools/engine/kept_expert_counts.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/formats/model_fingerprint.h"

namespace slipstream::tools {

namespace {

constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kMostLayers = 1U << 16;   // no model has more
constexpr std::uint64_t kMostExperts = 1U << 16;  // of a layer

std::int64_t n_experts_of(const LayerConfig& layer) {
    return layer.feed_forward.experts.n_experts;
}

}  // namespace

draft::TableSection expert_counts_section(std::uint64_t fingerprint, std::span<const ExpertUse> use) {
    draft::TableSection section{.name = std::string(kExpertCountsKind), .fields = {}};
    section.fields.u32(kVersion);
    section.fields.u64(fingerprint);
    section.fields.u32(static_cast<std::uint32_t>(use.size()));
    for (const ExpertUse& layer : use) {
        section.fields.u64(layer.n_tokens());
        section.fields.f32s(layer.counts().counts());
        section.fields.f32s(layer.ranks());
    }
    return section;
}

std::uint64_t ReadExpertCounts::n_tokens() const {
    std::uint64_t most = 0;
    for (const ExpertUse& layer : use) most = std::max(most, layer.n_tokens());
    return most;
}

ReadExpertCounts read_expert_counts(draft::TableReader section) {
    if (const std::uint32_t version = section.u32(); version != kVersion)
        section.fail(fmt::format("counts of version {}, this program reads {}", version, kVersion));
    ReadExpertCounts read{.fingerprint = section.u64(), .use = {}};
    const std::uint32_t n_layers = section.u32();
    if (n_layers > kMostLayers) section.fail(fmt::format("counts of {} layers", n_layers));
    for (std::uint32_t layer = 0; layer < n_layers; ++layer) {
        const std::uint64_t n_tokens = section.u64();
        const std::span<const float> counts = section.f32s();
        const std::span<const float> ranks = section.f32s();
        std::optional<ExpertUse> use;
        if (counts.size() <= kMostExperts)
            use = ExpertUse::restored(static_cast<std::int64_t>(counts.size()), counts, ranks, n_tokens);
        if (!use) section.fail(fmt::format("the counts of layer {} are damaged", layer));
        read.use.push_back(std::move(*use));
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

std::vector<ExpertUse> KeptExpertCounts::read() const {
    const std::optional<draft::TableFile> file = store_.load(fingerprint_, kExpertCountsKind);
    if (!file) return {};
    try {
        auto section = file->section(kExpertCountsKind);
        if (!section) throw FormatError(fmt::format("{}: no counts of experts in it", file->path().string()));
        ReadExpertCounts read = read_expert_counts(*section);
        if (read.fingerprint != fingerprint_) section->fail("counts of another model");
        if (std::ssize(read.use) != config_->n_layers())
            section->fail(fmt::format("counts of {} layers, the model has {}", read.use.size(), config_->n_layers()));
        for (std::size_t layer = 0; layer < read.use.size(); ++layer) {
            const std::int64_t n = read.use[layer].n_experts();
            if (n != 0 && n != n_experts_of(config_->layers[layer]))
                section->fail(fmt::format("counts of {} experts in layer {}, the model has {}", n, layer,
                                          n_experts_of(config_->layers[layer])));
        }
        return std::move(read.use);
    } catch (const FormatError& error) {
        store_.set_aside(fingerprint_, error.what(), kExpertCountsKind);
        return {};
    }
}

void KeptExpertCounts::write(std::span<const ExpertUse> use, std::span<const ExpertUse> before) const {
    std::vector<ExpertUse> all(config_->layers.size());
    for (std::size_t layer = 0; layer < all.size(); ++layer) {
        if (layer < before.size()) all[layer] = before[layer];
        if (layer < use.size() && use[layer].n_experts() > 0) all[layer] = use[layer];
    }
    try {
        store_.save(fingerprint_, std::vector{expert_counts_section(fingerprint_, all)}, kExpertCountsKind);
    } catch (const IoError& error) {
        on_note_(fmt::format("the counts of experts cannot be saved: {}", error.what()));
    }
}

std::vector<std::vector<double>> counted_hits(std::span<const ExpertUse> use) {
    std::vector<std::vector<double>> hits;
    bool are_known = false;
    for (const ExpertUse& layer : use) {
        hits.push_back(layer.hits());
        are_known = are_known || !hits.back().empty();
    }
    if (!are_known) hits.clear();
    return hits;
}

}  // namespace slipstream::tools
