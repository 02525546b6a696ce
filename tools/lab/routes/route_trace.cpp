#include "tools/lab/routes/route_trace.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace slipstream::tools {

namespace {

constexpr std::string_view kSection = "routes";
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kMostLayers = 1U << 16;
constexpr std::uint32_t kMostExperts = 1U << 16;

void check_ids(const draft::TableReader& fields, const RoutedLayer& layer, std::int64_t n_tokens) {
    for (std::int64_t token = 0; token < n_tokens; ++token) {
        const std::span<const std::uint16_t> chosen = layer.chosen(token);
        if (chosen.back() >= layer.n_experts)
            fields.fail(fmt::format("token {} chose expert {} of the {} of layer {}", token, chosen.back(),
                                    layer.n_experts, layer.layer));
        if (std::ranges::adjacent_find(chosen, std::ranges::greater_equal()) != chosen.end())
            fields.fail(fmt::format("the experts of token {} in layer {} do not ascend", token, layer.layer));
    }
}

RouteTrace read_section(draft::TableReader fields) {
    if (const std::uint32_t version = fields.u32(); version != kVersion)
        fields.fail(fmt::format("routes of version {}, this program reads {}", version, kVersion));
    RouteTrace trace;
    trace.model = std::string(fields.text());
    const std::uint32_t n_layers = fields.u32();
    if (n_layers < 1 || n_layers > kMostLayers) fields.fail(fmt::format("{} layers with experts", n_layers));
    std::uint64_t a_token = 0;  // experts that it chose, in all layers
    for (std::uint32_t i = 0; i < n_layers; ++i) {
        RoutedLayer layer{.layer = fields.u32(), .n_experts = fields.u32(), .n_chosen = fields.u32()};
        if (!trace.layers.empty() && layer.layer <= trace.layers.back().layer)
            fields.fail(fmt::format("layer {} after layer {}", layer.layer, trace.layers.back().layer));
        if (layer.n_chosen < 1 || layer.n_chosen > layer.n_experts || layer.n_experts > kMostExperts)
            fields.fail(fmt::format("{} of {} experts in layer {}", layer.n_chosen, layer.n_experts, layer.layer));
        a_token += static_cast<std::uint64_t>(layer.n_chosen);
        trace.layers.push_back(std::move(layer));
    }
    const std::uint64_t n_tokens = fields.u64();
    std::span<const std::uint16_t> ids = fields.array<std::uint16_t>();
    fields.finish();
    // a_token is below 2^33, and n_tokens is at most the number of ids where the check passes.
    if (n_tokens < 1 || n_tokens > ids.size() || n_tokens * a_token != ids.size())
        fields.fail(fmt::format("{} choices of {} tokens", ids.size(), n_tokens));
    trace.n_tokens = static_cast<std::int64_t>(n_tokens);
    for (RoutedLayer& layer : trace.layers) {
        const auto n = static_cast<std::size_t>(trace.n_tokens * layer.n_chosen);
        layer.ids.assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
        ids = ids.subspan(n);
        check_ids(fields, layer, trace.n_tokens);
    }
    return trace;
}

}  // namespace

void write_routes(const RouteTrace& trace, const draft::ByteSink& sink) {
    draft::TableWriter fields;
    fields.u32(kVersion);
    fields.text(trace.model);
    fields.u32(static_cast<std::uint32_t>(trace.layers.size()));
    std::vector<std::uint16_t> ids;
    for (const RoutedLayer& layer : trace.layers) {
        for (const std::int64_t number : {layer.layer, layer.n_experts, layer.n_chosen})
            fields.u32(static_cast<std::uint32_t>(number));
        ids.insert(ids.end(), layer.ids.begin(), layer.ids.end());
    }
    fields.u64(static_cast<std::uint64_t>(trace.n_tokens));
    fields.array(std::span<const std::uint16_t>(ids));
    const draft::TableSection section{std::string(kSection), std::move(fields)};
    draft::write_table_bytes({&section, 1}, sink);
}

RouteTrace parse_routes(std::string_view bytes, const std::string& name) {
    if (bytes.starts_with(kPublicRoutes)) return parse_public_routes(bytes, name);
    std::vector<std::uint64_t> aligned(bytes.size() / sizeof(std::uint64_t) + 1);
    std::memcpy(aligned.data(), bytes.data(), bytes.size());
    const draft::TableFile file = draft::TableFile::parse(std::as_bytes(std::span(aligned)).first(bytes.size()), name);
    const auto section = file.section(kSection);
    if (!section) throw FormatError(fmt::format("{}: a table file, but no trace of routes", name));
    return read_section(*section);
}

}  // namespace slipstream::tools
