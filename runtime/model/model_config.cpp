#include "runtime/model/model_config.h"

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace slipstream {

std::string_view architecture_name(Architecture architecture) {
    switch (architecture) {
        case Architecture::Llama:
            return "llama";
        case Architecture::Mistral:
            return "mistral";
        case Architecture::Qwen2:
            return "qwen2";
        case Architecture::Qwen3:
            return "qwen3";
        case Architecture::Phi3:
            return "phi3";
    }
    return "?";
}

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

// Sizes that are each possible may still be absurd together. After these, with the single ones checked before them:
// KV of the longest context <= 2^28 elements * 2^28 positions * 4 bytes = 2^58, weights <= 2^50 * 4 bytes = 2^52.
void check_products(const ModelConfig& config) {
    const std::int64_t q_cols = config.n_q_heads * config.head_dim;
    const std::int64_t kv_cols = config.n_kv_heads * config.head_dim;
    check_size("n_q_heads * head_dim", q_cols, 1 << 20);
    check_size("elements of KV cache a token (2 * n_layers * n_kv_heads * head_dim)", 2 * config.n_layers * kv_cols,
               1 << 28);
    const std::int64_t layer = config.d_model * (2 * q_cols + 2 * kv_cols + 3 * config.d_ff);
    check_size("number of weights", config.n_layers * layer + 2 * config.vocab * config.d_model, std::int64_t{1} << 50);
}

}  // namespace

void validate(const ModelConfig& config) {
    check_size("d_model (hidden size)", config.d_model, 1 << 20);
    check_size("d_ff (intermediate size)", config.d_ff, 1 << 22);
    check_size("n_layers", config.n_layers, 4096);
    check_size("n_q_heads (attention heads)", config.n_q_heads, 1 << 14);
    check_size("n_kv_heads (key/value heads)", config.n_kv_heads, 1 << 14);
    check_size("head_dim", config.head_dim, 1024);
    check_size("vocabulary size", config.vocab, 1 << 24);
    check_size("context length", config.context_tokens, 1 << 28);
    if (config.n_q_heads % config.n_kv_heads != 0)
        throw FormatError(fmt::format("{} attention heads are no multiple of {} key/value heads", config.n_q_heads,
                                      config.n_kv_heads));
    check_products(config);
    if (config.n_rotated < 2 || config.n_rotated % 2 != 0 || config.n_rotated > config.head_dim)
        throw FormatError(fmt::format("rope turns {} elements of a head of {}; an even number from 2 to {} is needed",
                                      config.n_rotated, config.head_dim, config.head_dim));
    if (!(config.rms_eps > 0.0F && config.rms_eps < 1.0F))
        throw FormatError(fmt::format("the norm's epsilon is {}", config.rms_eps));
    if (!(config.rope_theta >= 1.0 && config.rope_theta < 1e15))
        throw FormatError(fmt::format("rope theta is {}", config.rope_theta));
    const RopeScaling& scaling = config.rope_scaling;
    if (!(scaling.factor > 0.0 && scaling.factor < 1e6))
        throw FormatError(fmt::format("the rope scaling factor is {}", scaling.factor));
    const auto half = static_cast<std::size_t>(config.n_rotated / 2);
    for (const auto* factors : {&scaling.short_factors, &scaling.long_factors, &scaling.frequency_divisors}) {
        if (!factors->empty() && factors->size() != half)
            throw FormatError(fmt::format("{} rope factors for {} frequencies", factors->size(), half));
        for (const double factor : *factors)
            if (!(factor > 0.0 && factor < 1e6)) throw FormatError(fmt::format("a rope factor is {}", factor));
    }
    if (scaling.kind == RopeScalingKind::LongRope && (scaling.short_factors.empty() || scaling.long_factors.empty()))
        throw FormatError("longrope scaling without its short and long factors");
    if (!config.layer_window.empty() && config.layer_window.size() != static_cast<std::size_t>(config.n_layers))
        throw FormatError(fmt::format("{} sliding windows for {} layers", config.layer_window.size(), config.n_layers));
    for (const std::int64_t window : config.layer_window)
        if (window < 0) throw FormatError(fmt::format("a sliding window of {} tokens", window));
}

}  // namespace slipstream
