#include "tests/support/tiny_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <random>

#include "kernels/base/check.h"
#include "kernels/base/float16.h"
#include "tests/kernels/matmul_cases.h"
#include "tests/support/layers.h"

namespace slipstream {

namespace {

class TinyModel final : public ModelFiles {
public:
    explicit TinyModel(const TinyModelOptions& options) : type_(options.weight_type), random_(options.seed) {
        config_.family = "llama";
        config_.name = "tiny";
        config_.d_model = options.d_model;
        set_layers(config_, {.n_layers = options.n_layers,
                             .d_ff = options.d_ff,
                             .n_q_heads = options.n_q_heads,
                             .n_kv_heads = options.n_kv_heads,
                             .head_dim = options.head_dim});
        config_.vocab = options.vocab;
        config_.context_tokens = options.context_tokens;
        config_.kv_dtype = options.kv_dtype;
        if (options.window > 0) {
            for (LayerConfig& layer : config_.layers) layer.attention().window = options.window;
            if (options.n_layers > 1) config_.layers.front().attention().window = 0;  // a single layer keeps its window
        }
        set_heads(options.heads);
        if (options.gemma) describe_gemma();
        if (options.varied) describe_varied();
        if (options.gemma4) describe_gemma4(options.window);
        if (options.n_experts > 0) describe_experts(options);
        if (options.delta_nets) describe_delta_nets();
        if (options.gpt_oss) {
            for (std::size_t i = 0; i < config_.layers.size(); ++i) {
                config_.layers[i].attention().window = i % 2 == 0 ? 0 : options.window;
                if (config_.layers[i].feed_forward.experts.empty()) continue;
                config_.layers[i].feed_forward.activation = GatedActivation::ClampedSilu;
                config_.layers[i].feed_forward.activation_limit = 0.75F;
            }
        }
        validate(config_);
        const std::int64_t d = options.d_model;
        const DType v_type = options.v_type.value_or(type_);
        weights_.token_embedding = matrix(options.vocab, d);
        for (std::int64_t i = 0; i < options.n_layers; ++i) {
            LayerWeights& layer = weights_.layers.emplace_back();
            layer[TensorRole::AttnNorm] = norm(d);
            config_.layers[i].has_attention() ? add_attention(layer, config_.attention(i), options)
                                              : add_delta_net(layer, config_.delta_net(i).shape);
            layer[TensorRole::FfnNorm] = norm(d);
            if (config_.layers[i].feed_forward.d_ff > 0) {
                layer[TensorRole::Gate] = matrix(options.d_ff, d);
                layer[TensorRole::Up] = matrix(options.d_ff, d);
                layer[TensorRole::Down] = matrix(d, options.d_ff, v_type);
            }
            if (!config_.experts(i).empty()) add_experts(layer, config_.experts(i), options);
            if (config_.layers[i].has_attention()) add_biases_and_gate(layer, config_.attention(i), options);
            if (options.gemma || options.gemma4 || options.varied) {
                layer[TensorRole::AttnPostNorm] = norm(d);
                layer[TensorRole::FfnPostNorm] = norm(d);
            }
            if (options.gemma4) layer[TensorRole::OutputScale] = norm(1);
            if (config_.layers[i].has_attention()) add_head_norms(layer, config_.attention(i), options);
        }
        if (options.varied) weights_.embedding_norm = norm(d);
        weights_.output_norm = norm(d);
        weights_.lm_head = matrix(options.vocab, d, type_, 2.0F);
        if (options.head_period > 0) repeat_rows(weights_.lm_head, options.head_period);
    }

    std::string_view format() const override { return "memory"; }
    const std::vector<std::filesystem::path>& paths() const override { return paths_; }
    std::size_t total_bytes() const override { return 0; }
    const ModelConfig& config() const override { return config_; }
    const GenerationDefaults& generation_defaults() const override { return defaults_; }
    const TokenizerSource& tokenizer_source() const override { return tokenizer_; }
    const std::optional<std::string>& chat_template() const override { return chat_template_; }
    const std::vector<FileTensor>& tensors() const override { return tensors_; }
    std::vector<std::pair<std::string, std::string>> metadata() const override { return {}; }
    ModelWeights weights() const override { return weights_; }
    void prefetch(std::span<const std::byte>) const override {}
    void release(std::span<const std::byte>) const override {}

private:
    void describe_gemma() {
        config_.ropes.push_back({.theta = 100.0, .n_rotated = config_.ropes.front().n_rotated});
        config_.embedding_scale = 1.5F;
        config_.norm_offset = 0.25F;
        config_.logit_softcap = 3.0F;
        for (LayerConfig& layer : config_.layers) {
            layer.attention().scale_dim = 24.0;
            layer.attention().softcap = 2.0F;
            if (layer.attention().window > 0) layer.attention().rope = 1;
            layer.feed_forward.activation = GatedActivation::GeluTanh;
        }
    }

    void describe_varied() {
        config_.post_norm_eps = 0.25F;
        config_.norm_offset = 0.25F;
        config_.offsets_layer_norms_only = true;
        config_.residual_scale = 0.7F;
        config_.logit_scale = 0.5F;
        config_.logit_softcap = 3.0F;
        config_.ropes.front().query_growth = 0.75;
        config_.ropes.front().query_growth_period = 64;
        for (std::size_t i = 0; i < config_.layers.size(); ++i) {
            AttentionConfig& attention = config_.layers[i].attention();
            attention.output_gate = true;
            // Every third layer sees everything and does not encode positions.
            if (i % 3 != 2) continue;
            attention.window = 0;
            attention.rope = kNoRope;
        }
    }

    void describe_gemma4(std::int64_t window) {
        config_.embedding_scale = 1.5F;
        config_.logit_softcap = 3.0F;
        for (std::size_t i = 0; i < config_.layers.size(); ++i) {
            AttentionConfig& attention = config_.layers[i].attention();
            const bool is_full = i % 2 == 1 || i + 1 == config_.layers.size();
            attention.scale_dim = 1.0;
            attention.norms_values = true;
            attention.values_from_keys = is_full;
            attention.window = is_full ? 0 : window;
            if (is_full) {
                RopeConfig& rope = config_.ropes[attention.rope];
                rope.n_fixed_pairs = rope.n_rotated / 2 - rope.n_rotated / 8;
            }
            config_.layers[i].feed_forward.activation = GatedActivation::GeluTanh;
        }
    }

    void describe_experts(const TinyModelOptions& options) {
        for (std::size_t i = config_.layers.size() > 1 ? 1 : 0; i < config_.layers.size(); ++i) {
            FeedForwardConfig& feed_forward = config_.layers[i].feed_forward;
            feed_forward.experts = {
                .n_experts = options.n_experts, .n_chosen = options.n_chosen, .d_ff = options.expert_d_ff};
            if (options.gemma4)
                feed_forward.experts.router_norm_scale = 1.0F / std::sqrt(static_cast<float>(options.d_model));
            else if (options.shared_expert)
                feed_forward.experts.weighting = {
                    .score = ExpertScore::Sigmoid, .normalized = true, .sum_offset = 1e-20F, .scale = 1.5F};
            else
                feed_forward.d_ff = 0;
        }
    }

    void describe_delta_nets() {
        for (std::size_t i = 0; i < config_.layers.size(); ++i) {
            if (i % 3 == 2) {
                config_.layers[i].attention().gate_in_queries = true;
                continue;
            }
            // Layers differ in their sizes.
            const std::int64_t n_key_heads = i % 2 == 0 ? 2 : 1;
            config_.layers[i].mixer = DeltaNetConfig{.shape = {.n_key_heads = n_key_heads,
                                                               .n_value_heads = 4,
                                                               .key_dim = 16,
                                                               .value_dim = 24,
                                                               .conv_width = 4,
                                                               .tiled = i % 2 == 1},
                                                     .log_decay = true};
        }
    }

    void add_attention(LayerWeights& layer, const AttentionConfig& attention, const TinyModelOptions& options) {
        const std::int64_t d = options.d_model;
        const std::int64_t q = attention.q_cols();
        const std::int64_t kv = attention.kv_cols();
        layer[TensorRole::Q] = matrix(attention.gate_in_queries ? 2 * q : q, d);
        layer[TensorRole::K] = matrix(kv, d);
        if (!attention.values_from_keys) layer[TensorRole::V] = matrix(kv, d, options.v_type.value_or(type_));
        layer[TensorRole::AttnOut] = matrix(d, q);
    }

    void add_biases_and_gate(LayerWeights& layer, const AttentionConfig& attention, const TinyModelOptions& options) {
        if (options.biases) {
            layer[TensorRole::QBias] = norm(attention.q_cols());
            layer[TensorRole::KBias] = norm(attention.kv_cols());
            layer[TensorRole::VBias] = norm(attention.kv_cols());
        }
        if (options.gpt_oss) layer[TensorRole::Sinks] = norm(attention.n_q_heads);
        if (options.output_bias) layer[TensorRole::AttnOutBias] = norm(options.d_model);
        if (options.varied) layer[TensorRole::AttnGate] = matrix(attention.q_cols(), options.d_model, type_, 2.0F);
    }

    void add_head_norms(LayerWeights& layer, const AttentionConfig& attention, const TinyModelOptions& options) {
        if (!options.head_norms && !options.gemma4) return;
        layer[TensorRole::QNorm] = norm(attention.head_dim);
        layer[TensorRole::KNorm] = norm(attention.head_dim);
    }

    // Rates of decay, exp of norm(), are about e: a token keeps little of the state, a tenth of it and more where its
    // decay input is low.
    void add_delta_net(LayerWeights& layer, const DeltaNetShape& shape) {
        const std::int64_t d = config_.d_model;
        layer[TensorRole::DeltaIn] = matrix(shape.convolved_cols(), d);
        layer[TensorRole::DeltaGate] = matrix(shape.value_cols(), d);
        layer[TensorRole::DeltaDecayIn] = matrix(shape.n_value_heads, d, type_, 3.0F);
        layer[TensorRole::DeltaBeta] = matrix(shape.n_value_heads, d);
        layer[TensorRole::DeltaConv] = matrix(shape.convolved_cols(), shape.conv_width, DType::F32);
        layer[TensorRole::DeltaDecay] = norm(shape.n_value_heads);
        layer[TensorRole::DeltaDecayBias] = norm(shape.n_value_heads);
        layer[TensorRole::DeltaNorm] = norm(shape.value_dim);
        layer[TensorRole::DeltaOut] = matrix(d, shape.value_cols());
    }

    void add_experts(LayerWeights& layer, const ExpertsConfig& experts, const TinyModelOptions& options) {
        // Logits are as large as without the factor of the router's norm.
        layer[TensorRole::Router] =
            matrix(experts.n_experts, options.d_model, DType::F32, 2.0F / experts.router_norm_scale);
        if (options.gemma4) {
            for (const TensorRole role : {TensorRole::RouterNorm, TensorRole::ExpertsNorm, TensorRole::SharedPostNorm,
                                          TensorRole::ExpertsPostNorm})
                layer[role] = norm(options.d_model);
            layer[TensorRole::ExpertScales] = norm(experts.n_experts);
        }
        if (options.shared_expert) layer[TensorRole::ChoiceBias] = norm(experts.n_experts);
        if (options.gpt_oss) {
            layer[TensorRole::RouterBias] = norm(experts.n_experts);
            layer[TensorRole::GateBias] = matrix(experts.n_experts, experts.d_ff, DType::F32);
            layer[TensorRole::UpBias] = matrix(experts.n_experts, experts.d_ff, DType::F32);
            layer[TensorRole::DownBias] = matrix(experts.n_experts, options.d_model, DType::F32);
        }
        layer.experts.resize(static_cast<std::size_t>(experts.n_experts));
        for (ExpertWeights& expert : layer.experts) {
            expert[TensorRole::Gate] = matrix(experts.d_ff, options.d_model);
            expert[TensorRole::Up] = matrix(experts.d_ff, options.d_model);
            expert[TensorRole::Down] = matrix(options.d_model, experts.d_ff);
        }
    }

    // Sets the heads of each layer. Layers with the same head_dim share an entry of config_.ropes.
    void set_heads(const std::vector<LayerHeads>& heads) {
        if (heads.empty()) return;
        CHECK(std::ssize(heads) == config_.n_layers());
        config_.ropes.clear();
        for (std::size_t i = 0; i < heads.size(); ++i) {
            AttentionConfig& attention = config_.layers[i].attention();
            attention.n_q_heads = heads[i].n_q_heads;
            attention.n_kv_heads = heads[i].n_kv_heads;
            attention.head_dim = heads[i].head_dim;
            const auto rope = std::ranges::find(config_.ropes, heads[i].head_dim, &RopeConfig::n_rotated);
            attention.rope = static_cast<std::size_t>(rope - config_.ropes.begin());
            if (rope == config_.ropes.end()) config_.ropes.push_back({.n_rotated = heads[i].head_dim});
        }
    }

    std::byte* take(std::size_t bytes) { return storage_.emplace_back(bytes).data(); }

    // Changes a matrix that has just been made: rows repeat with `period`.
    static void repeat_rows(const ConstTensorView& matrix, std::int64_t period) {
        for (std::int64_t row = period; row < matrix.rows(); ++row)
            std::memcpy(const_cast<std::byte*>(matrix.row(row)), matrix.row(row % period), matrix.row_stride_bytes);
    }

    ConstTensorView norm(std::int64_t d) {
        std::byte* data = take(row_bytes(DType::F32, d));
        std::uniform_real_distribution<float> near_one(0.8F, 1.2F);
        for (std::int64_t i = 0; i < d; ++i) reinterpret_cast<float*>(data)[i] = near_one(random_);
        return vector_view(static_cast<const std::byte*>(data), DType::F32, d);
    }

    ConstTensorView matrix(std::int64_t rows, std::int64_t cols) { return matrix(rows, cols, type_); }
    // Returns a matrix whose values have deviation gain / sqrt(cols): normally distributed, but uniform codes in
    // quantised types other than Q8_0.
    ConstTensorView matrix(std::int64_t rows, std::int64_t cols, DType type, float gain = 1.0F) {
        const std::size_t bytes = row_bytes(type, rows * cols);
        std::byte* data = take(bytes);
        const float deviation = gain / std::sqrt(static_cast<float>(cols));
        if (is_quantized(type) && type != DType::Q8_0) {
            fill_codes(type, {data, bytes}, deviation);
        } else {
            fill_normal(type, data, rows * cols, deviation);
        }
        return matrix_view(static_cast<const std::byte*>(data), type, rows, cols);
    }

    // Fills blocks with random codes; all scales are the same, and give values of about `deviation`.
    void fill_codes(DType type, std::span<std::byte> bytes, float deviation) {
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
        // Values with scales of 1: K types multiply codes by scales of 4, 6 or 8 bits.
        const float values = type == DType::IQ4_XS                    ? 1280.0F
                             : type == DType::Q2_K                    ? 16.0F
                             : dtype_info(type).block_elements == 256 ? 300.0F
                             : type == DType::IQ4_NL                  ? 69.0F
                             : type == DType::MXFP4                   ? 6.0F
                                                                      : 9.0F;
        const Half scale = to_half(deviation / values);
        if (type == DType::MXFP4)
            for (std::size_t block = 0; block < bytes.size(); block += dtype_info(type).block_bytes)
                bytes[block] = static_cast<std::byte>(128 + std::ilogb(deviation / values));
        for (std::size_t block = 0; block < bytes.size(); block += dtype_info(type).block_bytes)
            for (const std::size_t field : testing_matmul::half_fields(type))
                std::memcpy(bytes.data() + block + field, &scale, sizeof(scale));
    }

    void fill_normal(DType type, std::byte* data, std::int64_t n, float deviation) {
        std::normal_distribution<float> normal(0.0F, deviation);
        for (std::int64_t i = 0; i < n; ++i) {
            const float value = normal(random_);
            if (type == DType::F32) reinterpret_cast<float*>(data)[i] = value;
            if (type == DType::F16) reinterpret_cast<Half*>(data)[i] = to_half(value);
            if (type == DType::BF16) reinterpret_cast<BFloat16*>(data)[i] = to_bfloat16(value);
            if (type == DType::Q8_0) {  // all blocks have the same scale: 4 deviations in 127 steps
                const Half scale = to_half(4.0F * deviation / 127.0F);
                std::byte* block = data + i / 32 * 34;
                std::memcpy(block, &scale, 2);
                const float code = std::round(value / to_float(scale));
                block[2 + i % 32] = static_cast<std::byte>(static_cast<std::int8_t>(std::clamp(code, -127.0F, 127.0F)));
            }
        }
    }

    DType type_;
    std::mt19937 random_;
    ModelConfig config_;
    ModelWeights weights_;
    GenerationDefaults defaults_;
    TokenizerSource tokenizer_;
    std::optional<std::string> chat_template_;
    std::vector<std::filesystem::path> paths_;
    std::vector<FileTensor> tensors_;
    std::deque<std::vector<std::byte>> storage_;
};

}  // namespace

std::unique_ptr<ModelFiles> make_tiny_model(const TinyModelOptions& options) {
    return std::make_unique<TinyModel>(options);
}

}  // namespace slipstream
