#include "tools/cli/layer_pattern.h"

#include <span>
#include <vector>

#include <fmt/format.h>

namespace slipstream::tools {

namespace {

std::string kind_of(const ModelConfig& config, const AttentionConfig& attention) {
    std::string kind = attention.window > 0 ? fmt::format("window {}", attention.window) : "full";
    kind += fmt::format(", {}/{} heads of {}", attention.n_q_heads, attention.n_kv_heads, attention.head_dim);
    if (attention.rope == kNoRope) {
        kind += ", no rope";
    } else if (config.ropes.size() > 1) {
        kind += fmt::format(", theta {}", config.ropes[attention.rope].theta);
    }
    if (attention.values_from_keys) kind += ", values from keys";
    return kind;
}

std::string kind_of(const DeltaNetShape& shape) {
    if (shape.key_dim == shape.value_dim)
        return fmt::format("delta net, {}/{} heads of {}", shape.n_key_heads, shape.n_value_heads, shape.key_dim);
    return fmt::format("delta net, {} key heads of {}, {} value heads of {}", shape.n_key_heads, shape.key_dim,
                       shape.n_value_heads, shape.value_dim);
}

// Returns how often each kind occurs in a row: "5: A; 1: B" for five layers of kind A and then one of kind B.
std::string runs(std::span<const std::string> kinds) {
    std::string text;
    for (std::size_t begin = 0, end = 0; begin < kinds.size(); begin = end) {
        while (end < kinds.size() && kinds[end] == kinds[begin]) ++end;
        text += fmt::format("{}{}: {}", begin == 0 ? "" : "; ", end - begin, kinds[begin]);
    }
    return text;
}

// Returns the least number of layers after which the kinds repeat, the last time perhaps not to the end.
std::size_t period_of(std::span<const std::string> kinds) {
    for (std::size_t period = 1; period < kinds.size(); ++period) {
        bool repeats = true;
        for (std::size_t i = period; i < kinds.size() && repeats; ++i) repeats = kinds[i] == kinds[i - period];
        if (repeats) return period;
    }
    return kinds.size();
}

}  // namespace

std::string layer_pattern(const ModelConfig& config) {
    std::vector<std::string> kinds;
    for (const LayerConfig& layer : config.layers)
        kinds.push_back(layer.has_attention() ? kind_of(config, layer.attention()) : kind_of(layer.delta_net().shape));
    const std::span<const std::string> all(kinds);
    const std::size_t period = period_of(all);
    const std::size_t times = all.size() / period;
    if (period == 1 || times < 2) return runs(all);
    std::string text = fmt::format("{} x [{}]", times, runs(all.first(period)));
    if (all.size() % period != 0) text += fmt::format(", then {}", runs(all.first(all.size() % period)));
    return text;
}

}  // namespace slipstream::tools
