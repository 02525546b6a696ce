#include "runtime/model/model_config.h"

#include <fmt/format.h>

#include <numeric>

#include "kernels/base/check.h"
#include "kernels/base/error.h"

namespace slipstream {

std::string_view rope_scaling_name(RopeScalingKind kind) {
    switch (kind) {
        case RopeScalingKind::None:
            return "none";
        case RopeScalingKind::Linear:
            return "linear";
        case RopeScalingKind::Dynamic:
            return "dynamic";
        case RopeScalingKind::Llama3:
            return "llama3";
        case RopeScalingKind::Yarn:
            return "yarn";
        case RopeScalingKind::LongRope:
            return "longrope";
    }
    return "?";
}

namespace {

void check_size(const char* field, std::int64_t value, std::int64_t limit) {
    if (value < 1 || value > limit)
        throw FormatError(fmt::format("{} is {}; 1 to {} can be served", field, value, limit));
}

// Throws FormatError if sizes are absurd together, although each alone is possible. With these checks, KV of the
// longest context is at most 2^28 elements * 2^28 positions * 4 bytes = 2^58 bytes, weights are at most 2^50 * 4 bytes
// = 2^52.
void check_sums(const ModelConfig& config) {
    std::int64_t kv_elements = 0;
    std::int64_t weights = 2 * config.vocab * config.d_model;
    for (const LayerConfig& layer : config.layers) {
        std::int64_t rows = 0;  // of the matrices of the first half; those of the output are counted as columns
        if (layer.has_attention()) {
            const AttentionConfig& attention = layer.attention();
            check_size("n_q_heads * head_dim", attention.q_cols(), 1 << 20);
            kv_elements += 2 * attention.kv_cols();
            rows = 3 * attention.q_cols() + 2 * attention.kv_cols();
        } else {
            const DeltaNetShape& shape = layer.delta_net().shape;
            check_size("columns of a delta net", shape.row_cols(), 1 << 20);
            check_size("elements of a delta net's state", shape.state_floats(), 1 << 28);
            rows = shape.row_cols() + 2 * shape.value_cols();
        }
        const ExpertsConfig& experts = layer.feed_forward.experts;
        // At most 2^50 + 2^57, so the sum does not overflow.
        weights += config.d_model * (rows + 3 * layer.feed_forward.d_ff + experts.n_experts * (3 * experts.d_ff + 1));
        check_size("number of weights", weights, std::int64_t{1} << 50);
    }
    check_size("elements of KV cache a token (2 * n_layers * n_kv_heads * head_dim)", kv_elements, 1 << 28);
}

void check_experts(const ExpertsConfig& experts) {
    if (experts.empty()) return;
    check_size("number of experts", experts.n_experts, 1 << 12);
    check_size("width of an expert", experts.d_ff, 1 << 22);
    if (experts.n_chosen < 1 || experts.n_chosen > experts.n_experts)
        throw FormatError(
            fmt::format("{} experts are chosen for each token; 1 to {} can be, the layer's number of "
                        "experts",
                        experts.n_chosen, experts.n_experts));
    const ExpertWeighting& weighting = experts.weighting;
    check_scale("the experts' weights", weighting.scale);
    CHECK(weighting.sum_offset >= 0.0F && weighting.sum_offset < 1.0F);
}

void check_delta_net(const DeltaNetShape& shape) {
    check_size("number of a delta net's key heads", shape.n_key_heads, 1 << 12);
    check_size("number of a delta net's value heads", shape.n_value_heads, 1 << 12);
    check_size("key size of a delta net", shape.key_dim, 1024);
    check_size("value size of a delta net", shape.value_dim, 1024);
    if (shape.conv_width < 2 || shape.conv_width > kMostTaps)
        throw FormatError(fmt::format("the convolution of a delta net sees {} tokens; 2 to {} can be served",
                                      shape.conv_width, kMostTaps));
    if (shape.n_value_heads % shape.n_key_heads != 0)
        throw FormatError(fmt::format("{} value heads of a delta net are not a multiple of {} key heads",
                                      shape.n_value_heads, shape.n_key_heads));
}

void check_layer(const ModelConfig& config, const LayerConfig& layer) {
    check_experts(layer.feed_forward.experts);
    if (layer.feed_forward.d_ff != 0 || layer.feed_forward.experts.empty())
        check_size("d_ff (intermediate size)", layer.feed_forward.d_ff, 1 << 22);
    if (!layer.has_attention()) return check_delta_net(layer.delta_net().shape);
    const AttentionConfig& attention = layer.attention();
    check_size("n_q_heads (attention heads)", attention.n_q_heads, 1 << 14);
    check_size("n_kv_heads (key/value heads)", attention.n_kv_heads, 1 << 14);
    check_size("head_dim", attention.head_dim, 1024);
    if (attention.n_q_heads % attention.n_kv_heads != 0)
        throw FormatError(fmt::format("{} attention heads are not a multiple of {} key/value heads",
                                      attention.n_q_heads, attention.n_kv_heads));
    if (attention.window < 0) throw FormatError(fmt::format("a sliding window of {} tokens", attention.window));
    if (attention.scale_dim != 0.0 && !(attention.scale_dim >= 1e-3 && attention.scale_dim <= 1e6))
        throw FormatError(fmt::format("the scale of attention scores is {}^-0.5", attention.scale_dim));
    check_softcap("attention scores", attention.softcap);
    const FeedForwardConfig& feed_forward = layer.feed_forward;
    if (feed_forward.activation == GatedActivation::ClampedSilu &&
        !(feed_forward.activation_limit >= 1e-3F && feed_forward.activation_limit <= 1e6F))
        throw FormatError(fmt::format("the limit of activations is {}; 0.001 to 1000000 can be served",
                                      feed_forward.activation_limit));
    CHECK(attention.norms_values || !attention.values_from_keys, "values that are keys, without a norm");
    if (attention.rope == kNoRope) return;
    CHECK(attention.rope < config.ropes.size(), "rope {} of {}", attention.rope, config.ropes.size());
    const RopeConfig& rope = config.ropes[attention.rope];
    const std::int64_t n_rotated = rope.n_rotated;
    if (n_rotated < 2 || n_rotated % 2 != 0 || n_rotated > attention.head_dim)
        throw FormatError(fmt::format("rope turns {} elements of a head of {}; an even number from 2 to {} is needed",
                                      n_rotated, attention.head_dim, attention.head_dim));
    if (rope.query_growth != 0.0 && n_rotated != attention.head_dim)
        throw FormatError(fmt::format("queries grow with the position, and rope turns only {} of {} elements of a head",
                                      n_rotated, attention.head_dim));
}

void check_rope(const RopeConfig& rope) {
    if (rope.n_rotated < 2 || rope.n_rotated % 2 != 0)
        throw FormatError(fmt::format("rope turns {} elements of a head; an even number is needed", rope.n_rotated));
    if (rope.n_fixed_pairs < 0 || rope.n_fixed_pairs > rope.n_rotated / 2)
        throw FormatError(
            fmt::format("{} of {} pairs of a head keep their angle", rope.n_fixed_pairs, rope.n_rotated / 2));
    if (!(rope.theta >= 1.0 && rope.theta < 1e15)) throw FormatError(fmt::format("rope theta is {}", rope.theta));
    if (rope.query_growth != 0.0 &&
        !(rope.query_growth > 0.0 && rope.query_growth <= 100.0 && rope.query_growth_period >= 1))
        throw FormatError(fmt::format("queries grow by {} every {} positions; 0 to 100 and 1 or more are needed",
                                      rope.query_growth, rope.query_growth_period));
    const RopeScaling& scaling = rope.scaling;
    if (!(scaling.factor > 0.0 && scaling.factor < 1e6))
        throw FormatError(fmt::format("the rope scaling factor is {}", scaling.factor));
    const auto half = static_cast<std::size_t>(rope.n_rotated / 2);
    for (const auto* factors : {&scaling.short_factors, &scaling.long_factors, &scaling.frequency_divisors}) {
        if (!factors->empty() && factors->size() != half)
            throw FormatError(fmt::format("{} rope factors for {} frequencies", factors->size(), half));
        for (const double factor : *factors)
            if (!(factor > 0.0 && factor < 1e6)) throw FormatError(fmt::format("a rope factor is {}", factor));
    }
    if (scaling.kind == RopeScalingKind::LongRope && (scaling.short_factors.empty() || scaling.long_factors.empty()))
        throw FormatError("longrope scaling without its short and long factors");
}

}  // namespace

std::int64_t ModelConfig::n_kv_groups() const {
    std::int64_t groups = 0;
    for (const LayerConfig& layer : layers)
        groups = std::gcd(groups, layer.has_attention() ? layer.attention().n_kv_heads : 0);
    return groups;
}

std::int64_t ModelConfig::first_attention_layer() const {
    const auto found = std::ranges::find_if(layers, &LayerConfig::has_attention);
    CHECK(found != layers.end(), "no layer has attention");
    return found - layers.begin();
}

KvLayout ModelConfig::kv_layout(std::int64_t layer, DType dtype) const {
    const LayerConfig& config = layers[layer];
    if (!config.has_attention()) return {.dtype = dtype, .state = config.delta_net().shape};
    return {config.attention().n_kv_heads, config.attention().head_dim, dtype};
}

std::vector<KvLayout> ModelConfig::kv_layouts(DType dtype) const {
    std::vector<KvLayout> layouts;
    for (std::int64_t layer = 0; layer < n_layers(); ++layer) layouts.push_back(kv_layout(layer, dtype));
    return layouts;
}

std::vector<std::int64_t> layer_windows(const ModelConfig& config) {
    std::vector<std::int64_t> windows;
    for (const LayerConfig& layer : config.layers) windows.push_back(layer.window());
    const bool none = std::ranges::all_of(windows, [](std::int64_t window) { return window == 0; });
    return none ? std::vector<std::int64_t>{} : windows;
}

void check_softcap(std::string_view what, double softcap) {
    if (softcap != 0.0 && !(softcap >= 1e-3 && softcap <= 1e6))
        throw FormatError(fmt::format("the softcap of {} is {}; 0.001 to 1000000 can be served", what, softcap));
}

void check_scale(std::string_view what, double scale) {
    if (!(scale >= 1e-6 && scale <= 1e6))
        throw FormatError(fmt::format("the scale of {} is {}; 0.000001 to 1000000 can be served", what, scale));
}

void check_layer_count(std::int64_t n_layers) {
    check_size("n_layers", n_layers, 4096);
}

void validate(const ModelConfig& config) {
    check_size("d_model (hidden size)", config.d_model, 1 << 20);
    check_layer_count(config.n_layers());
    check_size("vocabulary size", config.vocab, 1 << 24);
    check_size("context length", config.context_tokens, 1 << 28);
    for (const LayerConfig& layer : config.layers) check_layer(config, layer);
    if (std::ranges::none_of(config.layers, &LayerConfig::has_attention))
        throw FormatError("no layer has attention: models of recurrent layers alone are not served");
    check_sums(config);
    if (!(config.rms_eps > 0.0F && config.rms_eps < 1.0F))
        throw FormatError(fmt::format("the norm's epsilon is {}", config.rms_eps));
    if (!(config.post_norm_eps >= 0.0F && config.post_norm_eps < 1.0F))
        throw FormatError(fmt::format("the epsilon of norms after attention is {}", config.post_norm_eps));
    check_scale("the token embedding", config.embedding_scale);
    check_scale("the residual stream", config.residual_scale);
    check_scale("logits", config.logit_scale);
    check_softcap("logits", config.logit_softcap);
    for (const RopeConfig& rope : config.ropes) check_rope(rope);
}

}  // namespace slipstream
