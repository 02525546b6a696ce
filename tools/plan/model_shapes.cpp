// Shapes are taken from the configuration files of the models. The types that a mixture gives to each matrix follow
// llama.cpp (src/llama-quant.cpp, llama_tensor_get_type and tensor_type_fallback), for dense models without an
// importance matrix, but IQ4_NL and IQ4_XS with one, as they are published; checked against the sizes of published
// files. MXFP4 has no mixture for dense models: all matrices but the LM head have it. In models with experts, these
// alone have it, and all other matrices Q8_0 (MXFP4_MOE).
#include "tools/plan/model_shapes.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <ranges>

#include "kernels/base/check.h"
#include "runtime/formats/family.h"
#include "runtime/model/weights.h"

namespace slipstream::tools {

namespace {

struct NamedExperts {
    std::int64_t n_experts = 0;  // 0: none
    std::int64_t n_chosen = 0;
    std::int64_t d_ff = 0;
    std::int64_t n_shared = 0;        // experts that all tokens pass
    std::int64_t n_dense_layers = 0;  // the first ones, without experts
};

struct NamedDeltaNets {
    std::int64_t n_key_heads = 0;  // 0: none; else all layers but every fourth have one
    std::int64_t n_value_heads = 0;
    std::int64_t head_dim = 128;
};

struct NamedShape {
    std::string_view name;
    const Family* family;
    std::int64_t d_model, d_ff, n_layers, n_q_heads, n_kv_heads, head_dim, vocab, context_tokens;
    bool tied = false;
    std::int64_t window = 0;  // tokens of the sliding window of the layers that have one; the heads above are theirs
    NamedExperts experts{};
    NamedDeltaNets delta_nets{};
};

constexpr std::array kShapes{
    NamedShape{"llama-68m", &kLlama, 768, 3072, 2, 12, 12, 64, 32000, 2048},
    NamedShape{"110m", &kLlama, 768, 2048, 12, 12, 4, 64, 32000, 4096},
    NamedShape{"1b", &kLlama, 2048, 8192, 16, 32, 8, 64, 32000, 4096},
    NamedShape{"llama-7b", &kLlama, 4096, 11008, 32, 32, 32, 128, 32000, 2048},
    NamedShape{"llama-13b", &kLlama, 5120, 13824, 40, 40, 40, 128, 32000, 2048},
    NamedShape{"llama-70b", &kLlama, 8192, 28672, 80, 64, 8, 128, 32000, 4096},
    NamedShape{"llama2-7b", &kLlama, 4096, 11008, 32, 32, 32, 128, 32000, 4096},
    NamedShape{"llama2-7b-128k", &kLlama, 4096, 11008, 32, 32, 32, 128, 32000, 131072},
    NamedShape{"llama2-13b", &kLlama, 5120, 13824, 40, 40, 40, 128, 32000, 4096},
    NamedShape{"llama2-13b-128k", &kLlama, 5120, 13824, 40, 40, 40, 128, 32000, 131072},
    NamedShape{"llama2-70b", &kLlama, 8192, 28672, 80, 64, 8, 128, 32000, 4096},
    NamedShape{"codellama-34b", &kLlama, 8192, 22016, 48, 64, 8, 128, 32000, 16384},
    NamedShape{"llama3-8b", &kLlama, 4096, 14336, 32, 32, 8, 128, 128256, 8192},
    NamedShape{"llama3-70b", &kLlama, 8192, 28672, 80, 64, 8, 128, 128256, 8192},
    NamedShape{"llama3.1-8b", &kLlama, 4096, 14336, 32, 32, 8, 128, 128256, 131072},
    NamedShape{"llama3.1-70b", &kLlama, 8192, 28672, 80, 64, 8, 128, 128256, 131072},
    NamedShape{"llama3.1-405b", &kLlama, 16384, 53248, 126, 128, 8, 128, 128256, 131072},
    NamedShape{"llama3.2-1b", &kLlama, 2048, 8192, 16, 32, 8, 64, 128256, 131072, true},
    NamedShape{"llama3.2-3b", &kLlama, 3072, 8192, 28, 24, 8, 128, 128256, 131072, true},
    NamedShape{"mistral-7b", &kMistral, 4096, 14336, 32, 32, 8, 128, 32000, 32768},
    NamedShape{"mistral-small3-24b", &kMistral, 5120, 32768, 40, 32, 8, 128, 131072, 32768},
    NamedShape{"mistral-small3.2-24b", &kMistral, 5120, 32768, 40, 32, 8, 128, 131072, 131072},
    NamedShape{"ministral3-3b", &kMistral3, 3072, 9216, 26, 32, 8, 128, 131072, 262144, true},
    NamedShape{"ministral3-8b", &kMistral3, 4096, 14336, 34, 32, 8, 128, 131072, 262144},
    NamedShape{"ministral3-14b", &kMistral3, 5120, 16384, 40, 32, 8, 128, 131072, 262144},
    NamedShape{"phi4-14b", &kPhi3, 5120, 17920, 40, 40, 10, 128, 100352, 16384},
    NamedShape{"phi4-mini", &kPhi3, 3072, 8192, 32, 24, 8, 128, 200064, 131072, true},
    NamedShape{"muse-glimmer-30b", &kMuseGlimmer, 6656, 19968, 52, 32, 2, 128, 202048, 131072, false, 2048},
    NamedShape{"smollm3-3b", &kSmolLm3, 2048, 11008, 36, 16, 4, 128, 128256, 65536, true},
    NamedShape{"granite3.3-2b", &kGranite, 2048, 8192, 40, 32, 8, 64, 49159, 131072, true},
    NamedShape{"granite3.3-8b", &kGranite, 4096, 12800, 40, 32, 8, 128, 49159, 131072, true},
    NamedShape{"qwen2.5-0.5b", &kQwen2, 896, 4864, 24, 14, 2, 64, 151936, 32768, true},
    NamedShape{"qwen2.5-1.5b", &kQwen2, 1536, 8960, 28, 12, 2, 128, 151936, 32768, true},
    NamedShape{"qwen2.5-3b", &kQwen2, 2048, 11008, 36, 16, 2, 128, 151936, 32768, true},
    NamedShape{"qwen2.5-7b", &kQwen2, 3584, 18944, 28, 28, 4, 128, 152064, 32768},
    NamedShape{"qwen2.5-14b", &kQwen2, 5120, 13824, 48, 40, 8, 128, 152064, 32768},
    NamedShape{"qwen2.5-32b", &kQwen2, 5120, 27648, 64, 40, 8, 128, 152064, 32768},
    NamedShape{"qwen2.5-72b", &kQwen2, 8192, 29568, 80, 64, 8, 128, 152064, 32768},
    NamedShape{"qwen3-0.6b", &kQwen3, 1024, 3072, 28, 16, 8, 128, 151936, 40960, true},
    NamedShape{"qwen3-1.7b", &kQwen3, 2048, 6144, 28, 16, 8, 128, 151936, 40960, true},
    NamedShape{"qwen3-4b", &kQwen3, 2560, 9728, 36, 32, 8, 128, 151936, 40960, true},
    NamedShape{"qwen3-8b", &kQwen3, 4096, 12288, 36, 32, 8, 128, 151936, 40960},
    NamedShape{"qwen3-14b", &kQwen3, 5120, 17408, 40, 40, 8, 128, 151936, 40960},
    NamedShape{"qwen3-32b", &kQwen3, 5120, 25600, 64, 64, 8, 128, 151936, 40960},
    NamedShape{"qwen3-30b-a3b", &kQwen3Moe, 2048, 6144, 48, 32, 4, 128, 151936, 40960, false, 0, {128, 8, 768}},
    NamedShape{"qwen3-235b-a22b", &kQwen3Moe, 4096, 12288, 94, 64, 4, 128, 151936, 40960, false, 0, {128, 8, 1536}},
    NamedShape{"qwen3.5-0.8b", &kQwen35, 1024, 3584, 24, 8, 2, 256, 248320, 262144, true, 0, {}, {16, 16}},
    NamedShape{"qwen3.5-9b", &kQwen35, 4096, 12288, 32, 16, 4, 256, 248320, 262144, false, 0, {}, {16, 32}},
    NamedShape{"qwen3.8-27b", &kQwen35, 5120, 17408, 64, 24, 4, 256, 248320, 262144, false, 0, {}, {16, 48}},
    NamedShape{"qwen3.6-35b-a3b",
               &kQwen35Moe,
               2048,
               512,
               40,
               16,
               2,
               256,
               248320,
               262144,
               false,
               0,
               {256, 8, 512, 1},
               {16, 32}},
    NamedShape{"qwen3-coder-next",
               &kQwen3Next,
               2048,
               5120,
               48,
               16,
               2,
               256,
               151936,
               262144,
               false,
               0,
               {512, 10, 512, 1},
               {16, 32}},
    NamedShape{"mixtral-8x7b", &kMixtral, 4096, 14336, 32, 32, 8, 128, 32000, 32768, false, 0, {8, 2, 14336}},
    NamedShape{"glm-4.5-air", &kGlm4Moe, 4096, 10944, 46, 96, 8, 128, 151552, 131072, false, 0, {128, 8, 1408, 1, 1}},
    NamedShape{"olmoe-1b-7b", &kOlmoe, 2048, 1024, 16, 16, 16, 128, 50304, 4096, false, 0, {64, 8, 1024}},
    NamedShape{"gpt-oss-20b", &kGptOss, 2880, 2880, 24, 64, 8, 64, 201088, 131072, false, 128, {32, 4, 2880}},
    NamedShape{"gpt-oss-120b", &kGptOss, 2880, 2880, 36, 64, 8, 64, 201088, 131072, false, 128, {128, 4, 2880}},
    NamedShape{"gemma2-2b", &kGemma2, 2304, 9216, 26, 8, 4, 256, 256000, 8192, true, 4096},
    NamedShape{"gemma2-9b", &kGemma2, 3584, 14336, 42, 16, 8, 256, 256000, 8192, true, 4096},
    NamedShape{"gemma2-27b", &kGemma2, 4608, 36864, 46, 32, 16, 128, 256000, 8192, true, 4096},
    NamedShape{"gemma3-270m", &kGemma3, 640, 2048, 18, 4, 1, 256, 262144, 32768, true, 512},
    NamedShape{"gemma3-1b", &kGemma3, 1152, 6912, 26, 4, 1, 256, 262144, 32768, true, 512},
    NamedShape{"gemma3-4b", &kGemma3, 2560, 10240, 34, 8, 4, 256, 262144, 131072, true, 1024},
    NamedShape{"gemma3-12b", &kGemma3, 3840, 15360, 48, 16, 8, 256, 262144, 131072, true, 1024},
    NamedShape{"gemma3-27b", &kGemma3, 5376, 21504, 62, 32, 16, 128, 262144, 131072, true, 1024},
    NamedShape{"gemma4-12b", &kGemma4, 3840, 15360, 48, 16, 8, 256, 262144, 262144, true, 1024},
    NamedShape{"gemma4-31b", &kGemma4, 5376, 21504, 60, 32, 16, 256, 262144, 262144, true, 1024},
    // Its dense feed-forward is as wide as three experts.
    NamedShape{"gemma4-26b-a4b", &kGemma4, 2816, 2112, 30, 16, 8, 256, 262144, 262144, true, 1024, {128, 8, 704, 3}},
};

struct NamedQuantisation {
    std::string_view name;
    DType base;  // type of every matrix that the mixture does not single out
};
// All quantisations, in the order of the enumeration Quantisation, whose values are indices.
constexpr std::array kQuantisations{
    NamedQuantisation{"F32", DType::F32},       NamedQuantisation{"BF16", DType::BF16},
    NamedQuantisation{"F16", DType::F16},       NamedQuantisation{"Q8_0", DType::Q8_0},
    NamedQuantisation{"Q6_K", DType::Q6_K},     NamedQuantisation{"Q5_K_M", DType::Q5_K},
    NamedQuantisation{"Q5_K_S", DType::Q5_K},   NamedQuantisation{"Q5_1", DType::Q5_1},
    NamedQuantisation{"Q5_0", DType::Q5_0},     NamedQuantisation{"Q4_K_M", DType::Q4_K},
    NamedQuantisation{"Q4_K_S", DType::Q4_K},   NamedQuantisation{"Q4_1", DType::Q4_1},
    NamedQuantisation{"Q4_0", DType::Q4_0},     NamedQuantisation{"Q3_K_L", DType::Q3_K},
    NamedQuantisation{"Q3_K_M", DType::Q3_K},   NamedQuantisation{"Q3_K_S", DType::Q3_K},
    NamedQuantisation{"IQ4_NL", DType::IQ4_NL}, NamedQuantisation{"IQ4_XS", DType::IQ4_XS},
    NamedQuantisation{"MXFP4", DType::MXFP4},   NamedQuantisation{"Q2_K", DType::Q2_K},
};
static_assert(kQuantisations.size() == static_cast<std::size_t>(Quantisation::Q2_K) + 1);

bool same_name(std::string_view a, std::string_view b) {
    const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

DType base_type(Quantisation quantisation) {
    return kQuantisations[static_cast<std::size_t>(quantisation)].base;
}

// Returns whether the mixture gives a layer more bits: the first and last eighth of the layers, and every third
// between.
bool gets_more_bits(std::int64_t layer, std::int64_t n_layers) {
    return layer < n_layers / 8 || layer >= 7 * n_layers / 8 || (layer - n_layers / 8) % 3 == 2;
}

// Returns the type of V in a layer. `is_grouped`: whether at least four query heads share a KV head.
DType value_type(Quantisation quantisation, std::int64_t layer, std::int64_t n_layers, bool is_grouped) {
    switch (quantisation) {
        case Quantisation::Q2_K:
            return is_grouped ? DType::Q4_K : DType::Q3_K;
        case Quantisation::IQ4_NL:
        case Quantisation::IQ4_XS:
            return is_grouped ? DType::Q5_K : base_type(quantisation);
        case Quantisation::Q3_K_M:
            return layer < 2 ? DType::Q5_K : DType::Q4_K;
        case Quantisation::Q3_K_L:
            return DType::Q5_K;
        case Quantisation::Q4_K_S:
            return layer < 4 ? DType::Q5_K : DType::Q4_K;
        case Quantisation::Q4_K_M:
        case Quantisation::Q5_K_M:
            return gets_more_bits(layer, n_layers) ? DType::Q6_K : base_type(quantisation);
        default:
            return base_type(quantisation);
    }
}

DType down_type(Quantisation quantisation, std::int64_t layer, std::int64_t n_layers) {
    switch (quantisation) {
        case Quantisation::Q2_K:
            return DType::Q3_K;
        case Quantisation::Q3_K_M:
            return layer < n_layers / 16 ? DType::Q5_K : DType::Q4_K;
        case Quantisation::Q3_K_L:
            return DType::Q5_K;
        case Quantisation::Q4_K_S:
            return layer < n_layers / 8 ? DType::Q5_K : DType::Q4_K;
        case Quantisation::Q4_K_M:
        case Quantisation::Q5_K_M:
            return gets_more_bits(layer, n_layers) ? DType::Q6_K : base_type(quantisation);
        default:
            return base_type(quantisation);
    }
}

// llama.cpp takes the matrix for a fused one of queries, keys and values.
DType delta_in_type(Quantisation quantisation) {
    switch (quantisation) {
        case Quantisation::Q3_K_M:
        case Quantisation::Q3_K_L:
            return DType::Q4_K;
        case Quantisation::Q4_K_M:
            return DType::Q5_K;
        case Quantisation::Q5_K_M:
            return DType::Q6_K;
        default:
            return base_type(quantisation);
    }
}

// Returns the type of matrices that are no experts' and that the mixture does not single out.
DType dense_type(Quantisation quantisation, const ModelConfig& config) {
    return quantisation == Quantisation::MXFP4 && config.has_experts() ? DType::Q8_0 : base_type(quantisation);
}

// Returns the type that the mixture gives to a matrix of a layer, before fitting_type().
DType mixed_type(Quantisation quantisation, TensorRole role, std::int64_t layer, const ModelConfig& config) {
    DType type = dense_type(quantisation, config);
    if (quantisation == Quantisation::MXFP4) return type;
    if (role == TensorRole::V) {
        const std::int64_t n_shared = config.attention(layer).queries_per_kv_head();
        // Value matrices are counted, not layers.
        const auto has_values = [](const LayerConfig& one) { return one.has_attention(); };
        const auto before = std::ranges::count_if(config.layers | std::views::take(layer), has_values);
        const auto all = std::ranges::count_if(config.layers, has_values);
        type = value_type(quantisation, before, all, n_shared >= 4);
        // Value matrices of 80-layer models with grouped queries are small, so llama.cpp gives them more bits.
        const bool is_70b = config.n_layers() == 80 && n_shared > 1;
        if (is_70b && (type == DType::Q3_K || type == DType::Q4_K)) type = DType::Q5_K;
    }
    if (role == TensorRole::DeltaIn) type = delta_in_type(quantisation);
    if (role == TensorRole::Down) type = down_type(quantisation, layer, config.n_layers());
    if (role == TensorRole::AttnOut && quantisation == Quantisation::Q3_K_M) type = DType::Q4_K;
    if (role == TensorRole::AttnOut && quantisation == Quantisation::Q3_K_L) type = DType::Q5_K;
    if (role == TensorRole::AttnOut && quantisation == Quantisation::Q2_K) type = DType::Q3_K;
    return type;
}

bool divides(DType type, std::int64_t cols) {
    return cols % dtype_info(type).block_elements == 0;
}

// Returns `type`, or the type that replaces it if rows of `cols` elements are no multiple of its quantisation block.
DType fitting_type(DType type, std::int64_t cols) {
    if (divides(type, cols)) return type;
    switch (type) {
        case DType::Q2_K:
        case DType::Q3_K:
            type = DType::Q4_0;
            break;
        case DType::IQ4_XS:
            type = DType::IQ4_NL;
            break;
        case DType::Q4_K:
            type = DType::Q5_0;
            break;
        case DType::Q5_K:
            type = DType::Q5_1;
            break;
        default:
            type = DType::Q8_0;
    }
    return divides(type, cols) ? type : DType::F16;
}

DType head_type(Quantisation quantisation, std::int64_t cols) {
    const DType type = base_type(quantisation);
    if (!is_quantized(type) || type == DType::Q8_0) return type;
    if (type == DType::MXFP4) return DType::Q8_0;
    return divides(type, cols) ? fitting_type(DType::Q6_K, cols) : DType::Q8_0;
}

ConstTensorView shape_matrix(DType type, std::int64_t rows, std::int64_t cols) {
    return matrix_view<const std::byte>(nullptr, fitting_type(type, cols), rows, cols);
}

ConstTensorView shape_vector(std::int64_t n) {
    return vector_view<const std::byte>(nullptr, DType::F32, n);
}

// Returns whether files of the family have a bias; those that its names alone decide are required.
BiasRule bias_rule(const Family& family, TensorRole role) {
    if (role == TensorRole::QBias || role == TensorRole::KBias || role == TensorRole::VBias)
        return family.gguf_biases.qkv_bias;
    return role == TensorRole::AttnOutBias ? family.gguf_biases.out_bias : BiasRule::Required;
}

LayerWeights shape_layer(const ModelConfig& config, const Family& family, Quantisation quantisation,
                         std::int64_t index) {
    LayerWeights layer;
    for (const TensorInfo& info : kLayerTensors) {
        const TensorRole role = info.role;
        if (!can_have(config.layers[index], role)) continue;
        const FeedForwardConfig& feed_forward = config.layers[index].feed_forward;
        if (info.rows == TensorDim::FeedForward || info.cols == TensorDim::FeedForward)
            if (feed_forward.d_ff == 0) continue;
        if (family.gguf_names[role].empty() && family.hf_names[role].empty()) continue;
        const BiasRule rule = bias_rule(family, role);
        if (info.kind == TensorKind::Bias && rule != BiasRule::Required) continue;
        if (role == TensorRole::V && config.attention(index).values_from_keys) continue;
        const std::int64_t cols = dim_size(info.cols, config, index);
        const DType type = info.is_matrix() ? mixed_type(quantisation, role, index, config) : DType::F32;
        layer[role] =
            info.is_vector() ? shape_vector(cols) : shape_matrix(type, dim_size(info.rows, config, index), cols);
    }
    layer.experts.resize(static_cast<std::size_t>(config.experts(index).n_experts));
    for (ExpertWeights& expert : layer.experts)
        for (const TensorInfo& info : kExpertTensors)
            expert[info.role] = shape_matrix(
                quantisation == Quantisation::MXFP4 ? DType::MXFP4 : mixed_type(quantisation, info.role, index, config),
                dim_size(info.rows, config, index), dim_size(info.cols, config, index));
    return layer;
}

}  // namespace

std::string_view quantisation_name(Quantisation quantisation) {
    return kQuantisations[static_cast<std::size_t>(quantisation)].name;
}

std::vector<std::string_view> quantisation_names() {
    std::vector<std::string_view> names;
    for (const NamedQuantisation& entry : kQuantisations) names.push_back(entry.name);
    return names;
}

std::optional<Quantisation> find_quantisation(std::string_view name) {
    for (std::size_t i = 0; i < kQuantisations.size(); ++i)
        if (same_name(kQuantisations[i].name, name)) return static_cast<Quantisation>(i);
    return std::nullopt;
}

std::vector<std::string_view> shape_names() {
    std::vector<std::string_view> names;
    for (const NamedShape& shape : kShapes) names.push_back(shape.name);
    return names;
}

std::optional<ModelConfig> find_shape(std::string_view name, std::int64_t n_layers) {
    const auto found = std::find_if(kShapes.begin(), kShapes.end(),
                                    [&](const NamedShape& shape) { return same_name(shape.name, name); });
    if (found == kShapes.end()) return std::nullopt;
    ModelConfig config;
    config.family = found->family->name;
    config.name = found->name;
    config.d_model = found->d_model;
    config.ropes = {{.n_rotated = found->head_dim}};
    config.layers.assign(static_cast<std::size_t>(n_layers > 0 ? n_layers : found->n_layers),
                         {.mixer = AttentionConfig{.n_q_heads = found->n_q_heads,
                                                   .n_kv_heads = found->n_kv_heads,
                                                   .head_dim = found->head_dim},
                          .feed_forward = {.d_ff = found->d_ff}});
    const NamedExperts& experts = found->experts;
    for (std::int64_t layer = experts.n_dense_layers; experts.n_experts > 0 && layer < config.n_layers(); ++layer)
        config.layers[layer].feed_forward = {
            .d_ff = experts.n_shared * experts.d_ff,
            .experts = {.n_experts = experts.n_experts, .n_chosen = experts.n_chosen, .d_ff = experts.d_ff}};
    if (found->family->set_published != nullptr) found->family->set_published(config, found->window);
    const NamedDeltaNets& delta_nets = found->delta_nets;
    for (std::int64_t layer = 0; delta_nets.n_key_heads > 0 && layer < config.n_layers(); ++layer)
        if ((layer + 1) % 4 != 0)
            config.layers[layer].mixer = DeltaNetConfig{
                .shape = {.n_key_heads = delta_nets.n_key_heads,
                          .n_value_heads = delta_nets.n_value_heads,
                          .key_dim = delta_nets.head_dim,
                          .value_dim = delta_nets.head_dim,
                          .conv_width = 4,
                          .tiled = found->family != &kQwen3Next && delta_nets.n_key_heads != delta_nets.n_value_heads},
                .decay_in_beta = found->family == &kQwen3Next};
    config.vocab = found->vocab;
    config.context_tokens = found->context_tokens;
    config.tied_embeddings = found->tied;
    return config;
}

ModelWeights shape_weights(const ModelConfig& config, Quantisation quantisation) {
    ModelWeights weights;
    const DType head = head_type(quantisation, config.d_model);
    weights.lm_head = shape_matrix(head, config.vocab, config.d_model);
    weights.token_embedding =
        shape_matrix(config.tied_embeddings ? head : dense_type(quantisation, config), config.vocab, config.d_model);
    weights.output_norm = shape_vector(config.d_model);
    const Family& family = find_family(config.family);
    if (family.gguf_biases.constants[TensorRole::EmbeddingNorm]) weights.embedding_norm = shape_vector(config.d_model);
    for (std::int64_t layer = 0; layer < config.n_layers(); ++layer)
        weights.layers.push_back(shape_layer(config, family, quantisation, layer));
    return weights;
}

std::size_t file_bytes(const ModelWeights& weights, const ModelConfig& config) {
    std::size_t total = 0;
    for_each_tensor(weights, [&](const TensorInfo& info, std::int64_t /*layer*/, const ConstTensorView& view) {
        if (info.role == TensorRole::LmHead && config.tied_embeddings) return;
        total += view.rows() * row_bytes(view.dtype, view.cols());
    });
    return total;
}

}  // namespace slipstream::tools
