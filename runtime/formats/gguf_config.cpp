#include "runtime/formats/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"

namespace slipstream {

namespace {

struct KnownArchitecture {
    std::string_view name;
    Architecture architecture;
    // llama.cpp's converter permutes the rows of Q and K of llama models so that rotated pairs are adjacent.
    RopeLayout layout;
};

constexpr std::array kArchitectures{
    KnownArchitecture{"llama", Architecture::Llama, RopeLayout::Interleaved},
    KnownArchitecture{"qwen2", Architecture::Qwen2, RopeLayout::Half},
    KnownArchitecture{"qwen3", Architecture::Qwen3, RopeLayout::Half},
    KnownArchitecture{"phi3", Architecture::Phi3, RopeLayout::Half},
};

// Keys that change the arithmetic in ways that are not implemented, each with the value at which it changes nothing.
struct NeutralKey {
    std::string_view suffix;
    double neutral;
};
constexpr std::array kNeutralKeys{
    NeutralKey{"expert_count", 0.0},
    NeutralKey{"attention.clamp_kqv", 0.0},
    NeutralKey{"attention.max_alibi_bias", 0.0},
    NeutralKey{"attn_logit_softcapping", 0.0},
    NeutralKey{"final_logit_softcapping", 0.0},
    NeutralKey{"attention.temperature_scale", 0.0},
    NeutralKey{"attention.scale", 0.0},
    NeutralKey{"logit_scale", 1.0},
    NeutralKey{"embedding_scale", 1.0},
    NeutralKey{"residual_scale", 1.0},
    NeutralKey{"rope.scaling.yarn_log_multiplier", 0.0},
    NeutralKey{"rope.scaling.yarn_attn_factor", 1.0},
    NeutralKey{"rope.scaling.yarn_ext_factor", 1.0},
};

// The keys of one file, with the prefix of its architecture.
class Keys {
public:
    Keys(const GgufFile& file, std::string_view prefix) : file_(file), prefix_(prefix) {}

    [[nodiscard]] std::string key(std::string_view suffix) const { return fmt::format("{}.{}", prefix_, suffix); }
    [[nodiscard]] const GgufValue* find(std::string_view suffix) const { return file_.find(key(suffix)); }
    [[nodiscard]] std::optional<double> number(std::string_view suffix) const { return file_.number(key(suffix)); }
    [[nodiscard]] std::optional<std::int64_t> integer(std::string_view suffix) const {
        return file_.integer(key(suffix));
    }
    [[nodiscard]] std::optional<std::string_view> string(std::string_view suffix) const {
        return file_.string(key(suffix));
    }

    [[nodiscard]] std::int64_t required(std::string_view suffix) const {
        if (const auto value = integer(suffix)) return *value;
        throw FormatError(fmt::format("{}: metadata {} is missing", file_.name(), key(suffix)));
    }

    // Returns a value that is given as one number for all layers, or as an array with the same number for each.
    [[nodiscard]] std::optional<std::int64_t> uniform(std::string_view suffix, std::int64_t n_layers) const {
        const GgufValue* value = find(suffix);
        if (value == nullptr || value->type != GgufValueType::Array) return integer(suffix);
        const auto values = value->integers();
        if (!values || static_cast<std::int64_t>(values->size()) != n_layers)
            throw FormatError(fmt::format("{}: metadata {} is {}; one integer for each of {} layers is needed",
                                          file_.name(), key(suffix), value->to_text(), n_layers));
        if (std::any_of(values->begin(), values->end(), [&](std::int64_t v) { return v != values->front(); }))
            throw Unsupported(fmt::format("{}: {} differs between layers ({}), which is not served", file_.name(),
                                          key(suffix), value->to_text()));
        return values->front();
    }

    [[nodiscard]] const GgufFile& file() const { return file_; }

private:
    const GgufFile& file_;
    std::string_view prefix_;
};

const KnownArchitecture& find_architecture(const GgufFile& file) {
    const auto name = file.string("general.architecture");
    if (!name) throw FormatError(fmt::format("{}: metadata general.architecture is missing", file.name()));
    for (const KnownArchitecture& known : kArchitectures)
        if (known.name == *name) return known;
    throw Unsupported(fmt::format("{}: architecture \"{}\" is not served (served: llama, qwen2, qwen3, phi3)",
                                  file.name(), printable(*name)));
}

void refuse_foreign_arithmetic(const Keys& keys) {
    for (const NeutralKey& neutral : kNeutralKeys) {
        const auto value = keys.number(neutral.suffix);
        if (!value || *value == neutral.neutral) continue;
        if (neutral.suffix == "expert_count")
            throw Unsupported(
                fmt::format("{}: a mixture of {} experts, which is not served", keys.file().name(), *value));
        throw Unsupported(
            fmt::format("{}: {} = {} is not served", keys.file().name(), keys.key(neutral.suffix), *value));
    }
    if (const auto causal = keys.file().boolean(keys.key("attention.causal")); causal && !*causal)
        throw Unsupported(fmt::format("{}: attention that is not causal is not served", keys.file().name()));
}

std::vector<double> read_factors(const Keys& keys, const FileTensor& tensor) {
    if (tensor.type_name != "F32" || tensor.shape.size() != 1)
        throw Unsupported(fmt::format("{}: tensor {} has type {} and shape {}; a vector of F32 is served",
                                      keys.file().name(), printable(tensor.name), tensor.type_name,
                                      shape_text(tensor.shape)));
    std::vector<float> values(tensor.bytes / sizeof(float));
    std::memcpy(values.data(), tensor.view.data, tensor.bytes);
    return {values.begin(), values.end()};
}

RopeScaling read_rope_scaling(const Keys& keys, const TensorIndex& tensors) {
    RopeScaling scaling;
    const auto type = keys.string("rope.scaling.type").value_or("linear");
    scaling.factor = keys.number("rope.scaling.factor").value_or(0.0);
    if (scaling.factor == 0.0) scaling.factor = keys.number("rope.scale_linear").value_or(0.0);  // older key
    if (scaling.factor == 0.0) scaling.factor = 1.0;
    scaling.original_context = keys.integer("rope.scaling.original_context_length").value_or(0);
    const auto attention_factor = keys.number("rope.scaling.attn_factor");
    const FileTensor* long_factors = tensors.find("rope_factors_long.weight");
    const FileTensor* short_factors = tensors.find("rope_factors_short.weight");
    if (long_factors != nullptr || short_factors != nullptr || type == "longrope") {
        // Converters write the two tensors and the final attention factor, but no type.
        scaling.kind = RopeScalingKind::LongRope;
        if (long_factors != nullptr) scaling.long_factors = read_factors(keys, *long_factors);
        if (short_factors != nullptr) scaling.short_factors = read_factors(keys, *short_factors);
        scaling.attention_factor = attention_factor;
    } else if (type == "yarn") {
        scaling.kind = RopeScalingKind::Yarn;
        scaling.beta_fast = keys.number("rope.scaling.yarn_beta_fast").value_or(scaling.beta_fast);
        scaling.beta_slow = keys.number("rope.scaling.yarn_beta_slow").value_or(scaling.beta_slow);
        // In ggml this factor multiplies the formula's (ggml_rope_ext: mscale *= 1 + 0.1 ln s); here it replaces it.
        if (attention_factor)
            scaling.attention_factor = *attention_factor * (1.0 + 0.1 * std::log(std::max(scaling.factor, 1.0)));
    } else if (type == "linear") {
        if (scaling.factor != 1.0) scaling.kind = RopeScalingKind::Linear;
    } else if (type == "none") {
        scaling.factor = 1.0;
    } else {
        throw Unsupported(fmt::format("{}: rope scaling \"{}\" is not served (served: none, linear, yarn, longrope)",
                                      keys.file().name(), printable(type)));
    }
    if (const FileTensor* divisors = tensors.find("rope_freqs.weight")) {
        scaling.frequency_divisors = read_factors(keys, *divisors);
        if (scaling.kind == RopeScalingKind::None) scaling.kind = RopeScalingKind::Llama3;
    }
    return scaling;
}

// Returns the sliding window of each layer; empty: none has one. Without a pattern all layers have it; an array marks
// those that have it; a number n excludes every n-th. A window as long as the context is kept, since a longer context
// than the file's may be requested.
std::vector<std::int64_t> read_windows(const Keys& keys, const ModelConfig& config) {
    const std::int64_t window = keys.integer("attention.sliding_window").value_or(0);
    if (window <= 0) return {};
    const auto n_layers = static_cast<std::size_t>(config.n_layers);
    const GgufValue* pattern = keys.find("attention.sliding_window_pattern");
    std::vector<std::int64_t> windows(n_layers, window);
    if (pattern == nullptr) {
        // Qwen's layers below max_window_layers have no window, and without the pattern these layers are unknown. A
        // window that covers the context means that there is none.
        if (config.architecture == Architecture::Qwen2 || config.architecture == Architecture::Qwen3) {
            if (window >= config.context_tokens) return {};
            throw Unsupported(fmt::format("{}: {} = {} without a pattern of layers is not served for {}",
                                          keys.file().name(), keys.key("attention.sliding_window"), window,
                                          architecture_name(config.architecture)));
        }
        return windows;
    }
    if (const auto step = pattern->integer()) {
        for (std::size_t i = 0; *step > 0 && i < n_layers; ++i)
            if (i % static_cast<std::size_t>(*step) == static_cast<std::size_t>(*step) - 1) windows[i] = 0;
        return windows;
    }
    const auto flags = pattern->integers();
    if (!flags || flags->size() != n_layers)
        throw FormatError(fmt::format("{}: metadata {} is {}; a flag for each of {} layers is needed",
                                      keys.file().name(), keys.key("attention.sliding_window_pattern"),
                                      pattern->to_text(), n_layers));
    for (std::size_t i = 0; i < n_layers; ++i)
        if ((*flags)[i] == 0) windows[i] = 0;
    return windows;
}

std::int64_t read_head_dim(const Keys& keys, const ModelConfig& config) {
    std::optional<std::int64_t> key_length = keys.integer("attention.key_length");
    std::optional<std::int64_t> value_length = keys.integer("attention.value_length");
    if (!key_length || !value_length) {
        if (config.n_q_heads < 1 || config.d_model % config.n_q_heads != 0)
            throw FormatError(fmt::format("{}: {} elements do not divide among {} attention heads, and {} is not given",
                                          keys.file().name(), config.d_model, config.n_q_heads,
                                          keys.key("attention.key_length")));
        const std::int64_t shared = config.d_model / config.n_q_heads;
        key_length = key_length.value_or(shared);
        value_length = value_length.value_or(shared);
    }
    if (*key_length != *value_length)
        throw Unsupported(fmt::format("{}: keys of {} and values of {} elements a head; only equal lengths are served",
                                      keys.file().name(), *key_length, *value_length));
    return *key_length;
}

DType kv_type(const TensorIndex& tensors) {
    for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_qkv.weight"})
        if (const FileTensor* tensor = tensors.find(name); tensor != nullptr && !tensor->view.empty())
            return is_quantized(tensor->view.dtype) ? DType::F16 : tensor->view.dtype;
    return DType::F16;
}

}  // namespace

ModelConfig read_gguf_config(const GgufFile& file, const TensorIndex& tensors) {
    const KnownArchitecture& known = find_architecture(file);
    const Keys keys(file, known.name);
    refuse_foreign_arithmetic(keys);
    ModelConfig config;
    config.architecture = known.architecture;
    config.rope_layout = known.layout;
    config.name = file.string("general.name").value_or("");
    config.context_tokens = keys.required("context_length");
    config.d_model = keys.required("embedding_length");
    config.n_layers = keys.required("block_count");
    const auto uniform = [&](std::string_view suffix) { return keys.uniform(suffix, config.n_layers); };
    const auto d_ff = uniform("feed_forward_length");
    const auto n_q_heads = uniform("attention.head_count");
    if (!d_ff || !n_q_heads)
        throw FormatError(fmt::format("{}: metadata {} is missing", file.name(),
                                      keys.key(d_ff ? "attention.head_count" : "feed_forward_length")));
    config.d_ff = *d_ff;
    config.n_q_heads = *n_q_heads;
    config.n_kv_heads = uniform("attention.head_count_kv").value_or(config.n_q_heads);
    config.head_dim = read_head_dim(keys, config);
    const auto rms_eps = keys.number("attention.layer_norm_rms_epsilon");
    if (!rms_eps)
        throw FormatError(
            fmt::format("{}: metadata {} is missing", file.name(), keys.key("attention.layer_norm_rms_epsilon")));
    config.rms_eps = static_cast<float>(std::clamp(*rms_eps, 0.0, 2.0));
    config.n_rotated = keys.integer("rope.dimension_count").value_or(config.head_dim);
    config.rope_theta = keys.number("rope.freq_base").value_or(10000.0);
    config.rope_scaling = read_rope_scaling(keys, tensors);
    const FileTensor* embedding = tensors.find("token_embd.weight");
    if (embedding == nullptr || embedding->shape.size() != 2)
        throw FormatError(
            fmt::format("{}: tensor token_embd.weight [vocabulary, {}] is missing", file.name(), config.d_model));
    config.vocab = embedding->shape[0];
    config.tied_embeddings = tensors.find("output.weight") == nullptr;
    config.kv_dtype = kv_type(tensors);
    try {
        validate(config);
    } catch (const FormatError& error) {
        throw FormatError(fmt::format("{}: {}", file.name(), error.what()));
    }
    config.layer_window = read_windows(keys, config);
    return config;
}

GenerationDefaults read_gguf_generation_defaults(const GgufFile& file, const GgufVocabulary& vocabulary) {
    GenerationDefaults defaults;
    const auto add_end = [&](std::optional<std::int64_t> id) {
        if (!id || *id < 0 || *id >= static_cast<std::int64_t>(vocabulary.tokens.size())) return;
        const auto token = static_cast<TokenId>(*id);
        if (std::find(defaults.end_tokens.begin(), defaults.end_tokens.end(), token) == defaults.end_tokens.end())
            defaults.end_tokens.push_back(token);
    };
    add_end(vocabulary.eos_id);
    add_end(vocabulary.eot_id);
    if (const GgufValue* eom = file.find("tokenizer.ggml.eom_token_id")) add_end(eom->integer());
    defaults.temperature = file.number("general.sampling.temp");
    defaults.top_k = file.integer("general.sampling.top_k");
    defaults.top_p = file.number("general.sampling.top_p");
    defaults.min_p = file.number("general.sampling.min_p");
    defaults.repeat_penalty = file.number("general.sampling.penalty_repeat");
    return defaults;
}

}  // namespace slipstream
