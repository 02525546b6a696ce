// Shapes are those of the models' own configuration files. Which matrix a mixture gives which type follows what
// llama.cpp writes (src/llama-quant.cpp, llama_tensor_get_type and tensor_type_fallback), for dense models without an
// importance matrix; checked against the sizes of published files.
#include "tools/plan/model_shapes.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "kernels/base/check.h"
#include "runtime/model/weight_items.h"

namespace slipstream::tools {

namespace {

struct NamedShape {
    std::string_view name;
    Architecture architecture;
    std::int64_t d_model, d_ff, n_layers, n_q_heads, n_kv_heads, head_dim, vocab, context_tokens;
    bool tied = false;
};

constexpr auto kLlama = Architecture::Llama;
constexpr auto kQwen2 = Architecture::Qwen2;
constexpr auto kQwen3 = Architecture::Qwen3;

constexpr std::array kShapes{
    NamedShape{"llama-68m", kLlama, 768, 3072, 2, 12, 12, 64, 32000, 2048},
    NamedShape{"110m", kLlama, 768, 2048, 12, 12, 4, 64, 32000, 4096},
    NamedShape{"1b", kLlama, 2048, 8192, 16, 32, 8, 64, 32000, 4096},
    NamedShape{"llama-7b", kLlama, 4096, 11008, 32, 32, 32, 128, 32000, 2048},
    NamedShape{"llama-13b", kLlama, 5120, 13824, 40, 40, 40, 128, 32000, 2048},
    NamedShape{"llama-70b", kLlama, 8192, 28672, 80, 64, 8, 128, 32000, 4096},
    NamedShape{"llama2-7b", kLlama, 4096, 11008, 32, 32, 32, 128, 32000, 4096},
    NamedShape{"llama2-7b-128k", kLlama, 4096, 11008, 32, 32, 32, 128, 32000, 131072},
    NamedShape{"llama2-13b", kLlama, 5120, 13824, 40, 40, 40, 128, 32000, 4096},
    NamedShape{"llama2-13b-128k", kLlama, 5120, 13824, 40, 40, 40, 128, 32000, 131072},
    NamedShape{"llama2-70b", kLlama, 8192, 28672, 80, 64, 8, 128, 32000, 4096},
    NamedShape{"codellama-34b", kLlama, 8192, 22016, 48, 64, 8, 128, 32000, 16384},
    NamedShape{"llama3-8b", kLlama, 4096, 14336, 32, 32, 8, 128, 128256, 8192},
    NamedShape{"llama3-70b", kLlama, 8192, 28672, 80, 64, 8, 128, 128256, 8192},
    NamedShape{"llama3.1-8b", kLlama, 4096, 14336, 32, 32, 8, 128, 128256, 131072},
    NamedShape{"llama3.1-70b", kLlama, 8192, 28672, 80, 64, 8, 128, 128256, 131072},
    NamedShape{"llama3.1-405b", kLlama, 16384, 53248, 126, 128, 8, 128, 128256, 131072},
    NamedShape{"llama3.2-1b", kLlama, 2048, 8192, 16, 32, 8, 64, 128256, 131072, true},
    NamedShape{"llama3.2-3b", kLlama, 3072, 8192, 28, 24, 8, 128, 128256, 131072, true},
    NamedShape{"mistral-7b", Architecture::Mistral, 4096, 14336, 32, 32, 8, 128, 32000, 32768},
    NamedShape{"qwen2.5-0.5b", kQwen2, 896, 4864, 24, 14, 2, 64, 151936, 32768, true},
    NamedShape{"qwen2.5-1.5b", kQwen2, 1536, 8960, 28, 12, 2, 128, 151936, 32768, true},
    NamedShape{"qwen2.5-3b", kQwen2, 2048, 11008, 36, 16, 2, 128, 151936, 32768, true},
    NamedShape{"qwen2.5-7b", kQwen2, 3584, 18944, 28, 28, 4, 128, 152064, 32768},
    NamedShape{"qwen2.5-14b", kQwen2, 5120, 13824, 48, 40, 8, 128, 152064, 32768},
    NamedShape{"qwen2.5-32b", kQwen2, 5120, 27648, 64, 40, 8, 128, 152064, 32768},
    NamedShape{"qwen2.5-72b", kQwen2, 8192, 29568, 80, 64, 8, 128, 152064, 32768},
    NamedShape{"qwen3-0.6b", kQwen3, 1024, 3072, 28, 16, 8, 128, 151936, 40960, true},
    NamedShape{"qwen3-1.7b", kQwen3, 2048, 6144, 28, 16, 8, 128, 151936, 40960, true},
    NamedShape{"qwen3-4b", kQwen3, 2560, 9728, 36, 32, 8, 128, 151936, 40960, true},
    NamedShape{"qwen3-8b", kQwen3, 4096, 12288, 36, 32, 8, 128, 151936, 40960},
    NamedShape{"qwen3-14b", kQwen3, 5120, 17408, 40, 40, 8, 128, 151936, 40960},
    NamedShape{"qwen3-32b", kQwen3, 5120, 25600, 64, 64, 8, 128, 151936, 40960},
};

struct NamedQuantisation {
    std::string_view name;
    DType base;  // of every matrix that the mixture does not name
};
// In the order of the enumeration.
constexpr std::array kQuantisations{
    NamedQuantisation{"F32", DType::F32},     NamedQuantisation{"BF16", DType::BF16},
    NamedQuantisation{"F16", DType::F16},     NamedQuantisation{"Q8_0", DType::Q8_0},
    NamedQuantisation{"Q6_K", DType::Q6_K},   NamedQuantisation{"Q5_K_M", DType::Q5_K},
    NamedQuantisation{"Q5_K_S", DType::Q5_K}, NamedQuantisation{"Q5_1", DType::Q5_1},
    NamedQuantisation{"Q5_0", DType::Q5_0},   NamedQuantisation{"Q4_K_M", DType::Q4_K},
    NamedQuantisation{"Q4_K_S", DType::Q4_K}, NamedQuantisation{"Q4_1", DType::Q4_1},
    NamedQuantisation{"Q4_0", DType::Q4_0},   NamedQuantisation{"Q3_K_L", DType::Q3_K},
    NamedQuantisation{"Q3_K_M", DType::Q3_K}, NamedQuantisation{"Q3_K_S", DType::Q3_K},
};
static_assert(kQuantisations.size() == static_cast<std::size_t>(Quantisation::Q3_K_S) + 1);

bool same_name(std::string_view a, std::string_view b) {
    const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

DType base_type(Quantisation quantisation) {
    return kQuantisations[static_cast<std::size_t>(quantisation)].base;
}

// The first and last eighth of the layers, and every third between.
bool gets_more_bits(std::int64_t layer, std::int64_t n_layers) {
    return layer < n_layers / 8 || layer >= 7 * n_layers / 8 || (layer - n_layers / 8) % 3 == 2;
}

DType value_type(Quantisation quantisation, std::int64_t layer, std::int64_t n_layers) {
    switch (quantisation) {
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

// Of a matrix in a layer, by the mixture alone.
DType mixed_type(Quantisation quantisation, MatrixRole role, std::int64_t layer, const ModelConfig& config) {
    DType type = base_type(quantisation);
    if (role == MatrixRole::V) {
        type = value_type(quantisation, layer, config.n_layers);
        // Models of 80 layers with grouped queries have small value matrices: they get a bit more.
        const bool is_70b = config.n_layers == 80 && config.n_q_heads > config.n_kv_heads;
        if (is_70b && (type == DType::Q3_K || type == DType::Q4_K)) type = DType::Q5_K;
    }
    if (role == MatrixRole::Down) type = down_type(quantisation, layer, config.n_layers);
    if (role == MatrixRole::AttnOut && quantisation == Quantisation::Q3_K_M) type = DType::Q4_K;
    if (role == MatrixRole::AttnOut && quantisation == Quantisation::Q3_K_L) type = DType::Q5_K;
    return type;
}

bool divides(DType type, std::int64_t cols) {
    return cols % dtype_info(type).block_elements == 0;
}

// Where rows are no multiple of the type's block.
DType fitting_type(DType type, std::int64_t cols) {
    if (divides(type, cols)) return type;
    switch (type) {
        case DType::Q3_K:
            type = DType::Q4_0;
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
    return divides(type, cols) ? fitting_type(DType::Q6_K, cols) : DType::Q8_0;
}

ConstTensorView shape_matrix(DType type, std::int64_t rows, std::int64_t cols) {
    return matrix_view<const std::byte>(nullptr, fitting_type(type, cols), rows, cols);
}

// Norms and biases exist where they have an address; nobody reads there.
ConstTensorView shape_vector(std::int64_t n) {
    static constexpr std::byte kNothing{};
    return vector_view<const std::byte>(&kNothing, DType::F32, n);
}

LayerWeights shape_layer(const ModelConfig& config, Quantisation quantisation, std::int64_t index) {
    const std::int64_t d = config.d_model;
    const std::int64_t q = config.n_q_heads * config.head_dim;
    const std::int64_t kv = config.n_kv_heads * config.head_dim;
    const auto matrix = [&](MatrixRole role, std::int64_t rows, std::int64_t cols) {
        return shape_matrix(mixed_type(quantisation, role, index, config), rows, cols);
    };
    LayerWeights layer;
    layer.attn_norm = shape_vector(d);
    layer.ffn_norm = shape_vector(d);
    layer.q = matrix(MatrixRole::Q, q, d);
    layer.k = matrix(MatrixRole::K, kv, d);
    layer.v = matrix(MatrixRole::V, kv, d);
    layer.attn_out = matrix(MatrixRole::AttnOut, d, q);
    layer.gate = matrix(MatrixRole::Gate, config.d_ff, d);
    layer.up = matrix(MatrixRole::Up, config.d_ff, d);
    layer.down = matrix(MatrixRole::Down, d, config.d_ff);
    if (config.architecture == Architecture::Qwen2) {
        layer.q_bias = shape_vector(q);
        layer.k_bias = shape_vector(kv);
        layer.v_bias = shape_vector(kv);
    }
    if (config.architecture == Architecture::Qwen3) {
        layer.q_norm = shape_vector(config.head_dim);
        layer.k_norm = shape_vector(config.head_dim);
    }
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

std::optional<ModelConfig> find_shape(std::string_view name) {
    const auto found = std::find_if(kShapes.begin(), kShapes.end(),
                                    [&](const NamedShape& shape) { return same_name(shape.name, name); });
    if (found == kShapes.end()) return std::nullopt;
    ModelConfig config;
    config.architecture = found->architecture;
    config.name = found->name;
    config.d_model = found->d_model;
    config.d_ff = found->d_ff;
    config.n_layers = found->n_layers;
    config.n_q_heads = found->n_q_heads;
    config.n_kv_heads = found->n_kv_heads;
    config.head_dim = found->head_dim;
    config.n_rotated = found->head_dim;
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
        shape_matrix(config.tied_embeddings ? head : base_type(quantisation), config.vocab, config.d_model);
    weights.output_norm = shape_vector(config.d_model);
    for (std::int64_t layer = 0; layer < config.n_layers; ++layer)
        weights.layers.push_back(shape_layer(config, quantisation, layer));
    return weights;
}

std::size_t file_bytes(const ModelWeights& weights, const ModelConfig& config) {
    const auto bytes = [](const ConstTensorView& view) {
        return view.rank == 0 ? 0 : view.rows() * row_bytes(view.dtype, view.cols());
    };
    std::size_t total = bytes(weights.token_embedding) + bytes(weights.output_norm);
    if (!config.tied_embeddings) total += bytes(weights.lm_head);
    for (const LayerWeights& layer : weights.layers)
        for (const ConstTensorView* view : {&layer.attn_norm, &layer.q, &layer.k, &layer.v, &layer.q_bias,
                                            &layer.k_bias, &layer.v_bias, &layer.q_norm, &layer.k_norm, &layer.attn_out,
                                            &layer.attn_out_bias, &layer.ffn_norm, &layer.gate, &layer.up, &layer.down})
            total += bytes(*view);
    return total;
}

}  // namespace slipstream::tools
