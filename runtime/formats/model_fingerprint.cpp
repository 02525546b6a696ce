#include "runtime/formats/model_fingerprint.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include <xxhash.h>

#include "offload/mapped_file.h"

namespace slipstream {

namespace {

// Bytes of one sample of a tensor. Fingerprints are stored in files, so it must not change.
constexpr std::size_t kSampleBytes = 64;

// A chain of XXH3-64, each seeded with the one before. Lengths are hashed too, so that bytes cannot move between
// neighbouring values without a change.
class Digest {
public:
    void bytes(std::span<const std::byte> data) {
        number(data.size());
        state_ = XXH3_64bits_withSeed(data.data(), data.size(), state_);
    }
    void text(std::string_view value) { bytes(std::as_bytes(std::span(value.data(), value.size()))); }
    template <typename T>
    void number(T value) {
        static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
        state_ = XXH3_64bits_withSeed(&value, sizeof(value), state_);
    }
    template <typename T>
    void numbers(const std::vector<T>& values) {
        bytes(std::as_bytes(std::span(values)));
    }
    [[nodiscard]] std::uint64_t value() const { return state_; }

private:
    std::uint64_t state_ = 0;
};

// The families that were served first, whose layers differ only in windows. Fingerprints that are stored in files must
// not change, so the digest of these families has the number of the family here in place of its name.
constexpr std::array<std::string_view, 5> kUniformFamilies{"llama", "mistral", "qwen2", "qwen3", "phi3"};

void add_scaling(Digest& digest, const RopeScaling& scaling) {
    digest.number(scaling.kind);
    for (const double value : {scaling.factor, static_cast<double>(scaling.original_context), scaling.low_freq_factor,
                               scaling.high_freq_factor, scaling.beta_fast, scaling.beta_slow,
                               scaling.attention_factor.value_or(0.0), scaling.mscale, scaling.mscale_all_dim})
        digest.number(value);
    digest.numbers(scaling.short_factors);
    digest.numbers(scaling.long_factors);
    digest.numbers(scaling.frequency_divisors);
    if (!scaling.rounds_bounds) digest.text("bounds of yarn are not rounded");  // added later
}

void add_uniform_config(Digest& digest, const ModelConfig& config, std::uint8_t family) {
    digest.number(family);
    const LayerConfig& first = config.layers.front();
    const AttentionConfig& attention = first.attention();
    const RopeConfig& rope = config.ropes.front();
    for (const std::int64_t size : {config.d_model, first.feed_forward.d_ff, config.n_layers(), attention.n_q_heads,
                                    attention.n_kv_heads, attention.head_dim, config.vocab, rope.n_rotated})
        digest.number(size);
    digest.number(config.rms_eps);
    digest.number(rope.theta);
    digest.number(config.rope_layout);
    add_scaling(digest, rope.scaling);
    digest.numbers(layer_windows(config));
}

void add_config(Digest& digest, const ModelConfig& config) {
    const auto found = std::ranges::find(kUniformFamilies, config.family);
    if (found != kUniformFamilies.end() && !config.has_experts())
        return add_uniform_config(digest, config, static_cast<std::uint8_t>(found - kUniformFamilies.begin()));
    digest.text(config.family);
    digest.number(config.d_model);
    digest.number(config.vocab);
    for (const float value : {config.rms_eps, config.norm_offset, config.embedding_scale, config.logit_softcap})
        digest.number(value);
    digest.number(config.rope_layout);
    // Fields that were added later are hashed only if they change the result, so that earlier fingerprints stay valid.
    const auto add_changed = [&](std::string_view name, double value, double neutral) {
        if (value == neutral) return;
        digest.text(name);
        digest.number(value);
    };
    add_changed("post_norm_eps", config.post_norm_eps, 0.0);
    add_changed("offsets_layer_norms_only", config.offsets_layer_norms_only ? 1.0 : 0.0, 0.0);
    add_changed("residual_scale", config.residual_scale, 1.0);
    add_changed("logit_scale", config.logit_scale, 1.0);
    for (const RopeConfig& rope : config.ropes) {
        digest.number(rope.theta);
        digest.number(rope.n_rotated);
        if (rope.n_fixed_pairs > 0) digest.number(rope.n_fixed_pairs);
        add_scaling(digest, rope.scaling);
        add_changed("query_growth", rope.query_growth, 0.0);
        add_changed("query_growth_period", static_cast<double>(rope.query_growth_period), 0.0);
    }
    for (const LayerConfig& layer : config.layers) {
        if (layer.has_attention()) {
            const AttentionConfig& attention = layer.attention();
            for (const std::int64_t size : {attention.n_q_heads, attention.n_kv_heads, attention.head_dim,
                                            attention.window, layer.feed_forward.d_ff})
                digest.number(size);
            digest.number(attention.rope);
            digest.number(attention.scale());
            digest.number(attention.softcap);
            add_changed("norms_projections", attention.norms_projections ? 1.0 : 0.0, 0.0);
            add_changed("output_gate", attention.output_gate ? 1.0 : 0.0, 0.0);
            add_changed("gate_in_queries", attention.gate_in_queries ? 1.0 : 0.0, 0.0);
            if (attention.norms_values) digest.number(attention.values_from_keys);
        } else {
            const DeltaNetConfig& delta_net = layer.delta_net();
            const DeltaNetShape& shape = delta_net.shape;
            digest.text("delta_net");
            for (const std::int64_t size : {shape.n_key_heads, shape.n_value_heads, shape.key_dim, shape.value_dim,
                                            shape.conv_width, layer.feed_forward.d_ff})
                digest.number(size);
            digest.number(shape.tiled);
            digest.number(delta_net.log_decay);
            add_changed("gate_in_inputs", delta_net.gate_in_inputs ? 1.0 : 0.0, 0.0);
            add_changed("decay_in_beta", delta_net.decay_in_beta ? 1.0 : 0.0, 0.0);
        }
        digest.number(layer.feed_forward.activation);
        add_changed("activation_limit", layer.feed_forward.activation_limit, 0.0);
        const ExpertsConfig& experts = layer.feed_forward.experts;
        if (experts.empty()) continue;
        for (const std::int64_t size : {experts.n_experts, experts.n_chosen, experts.d_ff}) digest.number(size);
        digest.number(experts.weighting.score);
        digest.number(experts.weighting.normalized);
        for (const float value : {experts.weighting.sum_offset, experts.weighting.scale}) digest.number(value);
        add_changed("router_norm_scale", experts.router_norm_scale, 1.0);
    }
}

void add_vocabulary(Digest& digest, const TokenizerSource& source) {
    if (source.gguf) {
        digest.text(source.gguf->model);
        digest.text(source.gguf->pre_tokenizer);
        for (const std::string& token : source.gguf->tokens) digest.text(token);
        digest.numbers(source.gguf->scores);
        for (const std::string& merge : source.gguf->merges) digest.text(merge);
    }
    for (const auto& path : {source.sentencepiece_model, source.tokenizer_json, source.vocab_json, source.merges_txt})
        if (!path.empty()) digest.bytes(MappedFile(path).bytes());
    // Read only without a tokenizer.json: with one, the fingerprint must not depend on tekken.json.
    if (source.tokenizer_json.empty() && !source.tekken_json.empty())
        digest.bytes(MappedFile(source.tekken_json).bytes());
}

void add_sample(Digest& digest, const FileTensor& tensor) {
    digest.text(tensor.name);
    digest.text(tensor.type_name);
    digest.numbers(tensor.shape);
    digest.number(tensor.bytes);
    // Of types that are not supported, those of MXFP4 in directories alone.
    const std::byte* data = tensor.type_name == "U8" ? tensor.data : tensor.view.data;
    if (data == nullptr) return;
    const std::size_t n = std::min(kSampleBytes, tensor.bytes);
    for (const std::size_t begin : {std::size_t{0}, (tensor.bytes - n) / 2, tensor.bytes - n})
        digest.bytes({data + begin, n});
}

}  // namespace

std::uint64_t model_fingerprint(const ModelFiles& files) {
    Digest digest;
    add_config(digest, files.config());
    add_vocabulary(digest, files.tokenizer_source());
    for (const FileTensor& tensor : files.tensors()) add_sample(digest, tensor);
    // Norms that the files do not store: all weights of one norm are the same number.
    const ModelWeights weights = files.weights();
    if (weights.constants)
        for (const std::vector<float>& norm : *weights.constants) digest.number(norm.front());
    return digest.value();
}

std::uint64_t tokenizer_fingerprint(const Tokenizer& tokenizer) {
    Digest digest;
    const std::int64_t n = tokenizer.vocab_size();
    digest.number(n);
    for (std::int64_t id = 0; id < n; ++id) {
        digest.text(tokenizer.piece(static_cast<TokenId>(id)));
        digest.number(tokenizer.token_kind(static_cast<TokenId>(id)));
    }
    return digest.value();
}

}  // namespace slipstream
