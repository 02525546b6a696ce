#include "runtime/formats/gguf_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/base/error.h"
#include "runtime/formats/family.h"
#include "runtime/formats/gguf_keys.h"
#include "runtime/formats/suppressed_tokens.h"
#include "runtime/text/printable.h"

namespace slipstream {

namespace {

// Keys that change the arithmetic in ways that are not implemented, each with the value at which it changes nothing.
struct NeutralKey {
    std::string_view suffix;
    double neutral;
    std::string_view what{};  // what another value means, for the message
};
constexpr std::array kNeutralKeys{
    NeutralKey{"expert_count", 0.0},
    NeutralKey{"embedding_length_per_layer_input", 0.0, "per-layer embeddings (Gemma 4 E2B and E4B)"},
    NeutralKey{"attention.shared_kv_layers", 0.0, "layers that use the KV of earlier ones (Gemma 4 E2B and E4B)"},
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

const Family& family_of(const GgufFile& file) {
    const auto name = file.string("general.architecture");
    if (!name) throw FormatError(fmt::format("{}: metadata general.architecture is missing", file.name()));
    std::vector<std::string_view> served;
    for (const Family* family : kFamilies) {
        if (family->gguf_name.empty()) continue;
        if (family->gguf_name == *name) return *family;
        served.push_back(family->gguf_name);
    }
    // Ollama's own converter, with other names of keys and tensors.
    if (*name == "gptoss")
        throw Unsupported(fmt::format(
            "{}: gpt-oss in Ollama's own layout (architecture \"gptoss\") is not served; use a GGUF file of "
            "llama.cpp's converter (architecture \"gpt-oss\")",
            file.name()));
    throw Unsupported(fmt::format("{}: architecture \"{}\" is not served (served: {})", file.name(), printable(*name),
                                  fmt::join(served, ", ")));
}

bool is_read(std::string_view suffix, std::span<const std::string_view> read_by_family) {
    return std::ranges::find(read_by_family, suffix) != read_by_family.end();
}

void refuse_foreign_arithmetic(const GgufKeys& keys, std::span<const std::string_view> read_by_family) {
    for (const NeutralKey& neutral : kNeutralKeys) {
        const auto value = keys.number(neutral.suffix);
        if (!value || *value == neutral.neutral) continue;
        if (is_read(neutral.suffix, read_by_family)) continue;
        if (neutral.suffix == "expert_count")
            throw Unsupported(
                fmt::format("{}: a mixture of {} experts, which is not served", keys.file().name(), *value));
        const std::string found = fmt::format("{} = {}", keys.key(neutral.suffix), *value);
        throw Unsupported(neutral.what.empty()
                              ? fmt::format("{}: {} is not served", keys.file().name(), found)
                              : fmt::format("{}: {} are not served ({})", keys.file().name(), neutral.what, found));
    }
    if (const auto causal = keys.file().boolean(keys.key("attention.causal")); causal && !*causal)
        throw Unsupported(fmt::format("{}: attention that is not causal is not served", keys.file().name()));
}

std::vector<double> read_factors(const GgufKeys& keys, const FileTensor& tensor) {
    if (tensor.type_name != "F32" || tensor.shape.size() != 1)
        throw Unsupported(fmt::format("{}: tensor {} has type {} and shape {}; a vector of F32 is served",
                                      keys.file().name(), printable(tensor.name), tensor.type_name,
                                      shape_text(tensor.shape)));
    std::vector<float> values(tensor.bytes / sizeof(float));
    std::memcpy(values.data(), tensor.view.data, tensor.bytes);
    return {values.begin(), values.end()};
}

RopeScaling read_rope_scaling(const GgufKeys& keys, const TensorIndex& tensors) {
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
        // In ggml the factor of the file multiplies that of the formula (ggml_rope_ext: mscale *= 1 + 0.1 ln s); here
        // attention_factor replaces that of the formula, so it is the product of both.
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

std::int64_t read_head_dim(const GgufKeys& keys, std::int64_t d_model, std::int64_t n_q_heads) {
    std::optional<std::int64_t> key_length = keys.integer("attention.key_length");
    std::optional<std::int64_t> value_length = keys.integer("attention.value_length");
    if (!key_length || !value_length) {
        if (n_q_heads < 1 || d_model % n_q_heads != 0)
            throw FormatError(fmt::format("{}: {} elements do not divide among {} attention heads, and {} is not given",
                                          keys.file().name(), d_model, n_q_heads, keys.key("attention.key_length")));
        const std::int64_t shared = d_model / n_q_heads;
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
    const Family& family = family_of(file);
    const GgufKeys keys(file, family.gguf_name, tensors);
    refuse_foreign_arithmetic(keys, family.gguf_keys);
    ModelConfig config;
    config.family = family.name;
    config.rope_layout = family.gguf_rope_layout;
    config.name = file.string("general.name").value_or("");
    config.context_tokens = keys.required("context_length");
    config.d_model = keys.required("embedding_length");
    const std::int64_t n_layers = keys.required("block_count");
    try {
        check_layer_count(n_layers);
    } catch (const FormatError& error) {
        throw FormatError(fmt::format("{}: {}", file.name(), error.what()));
    }
    const auto uniform = [&](std::string_view suffix) { return keys.uniform(suffix, n_layers); };
    const auto d_ff = uniform("feed_forward_length");
    const auto n_q_heads = uniform("attention.head_count");
    // Models whose layers all have experts need not have feed_forward_length; the other ones check what they get.
    const bool needs_d_ff = !is_read("expert_count", family.gguf_keys) || !keys.find("expert_count");
    if ((!d_ff && needs_d_ff) || !n_q_heads)
        throw FormatError(fmt::format("{}: metadata {} is missing", file.name(),
                                      keys.key(n_q_heads ? "feed_forward_length" : "attention.head_count")));
    const bool kv_heads_by_layer = is_read("attention.head_count_kv", family.gguf_keys);
    AttentionConfig attention{
        .n_q_heads = *n_q_heads,
        .n_kv_heads = kv_heads_by_layer ? *n_q_heads : uniform("attention.head_count_kv").value_or(*n_q_heads),
        .head_dim = read_head_dim(keys, config.d_model, *n_q_heads)};
    const auto rms_eps = keys.number("attention.layer_norm_rms_epsilon");
    if (!rms_eps)
        throw FormatError(
            fmt::format("{}: metadata {} is missing", file.name(), keys.key("attention.layer_norm_rms_epsilon")));
    config.rms_eps = static_cast<float>(std::clamp(*rms_eps, 0.0, 2.0));
    config.ropes = {{.theta = keys.number("rope.freq_base").value_or(10000.0),
                     .n_rotated = keys.integer("rope.dimension_count").value_or(attention.head_dim),
                     .scaling = read_rope_scaling(keys, tensors)}};
    const FileTensor* embedding = tensors.find("token_embd.weight");
    if (embedding == nullptr || embedding->shape.size() != 2)
        throw FormatError(
            fmt::format("{}: tensor token_embd.weight [vocabulary, {}] is missing", file.name(), config.d_model));
    config.vocab = embedding->shape[0];
    config.tied_embeddings = tensors.find("output.weight") == nullptr;
    config.kv_dtype = kv_type(tensors);
    try {
        config.layers.assign(static_cast<std::size_t>(n_layers),
                             {.mixer = attention, .feed_forward = {.d_ff = d_ff.value_or(0)}});
        family.read_gguf(keys, config);
        validate(config);
    } catch (const FormatError& error) {
        const std::string text = error.what();
        throw FormatError(text.starts_with(file.name()) ? text : fmt::format("{}: {}", file.name(), text));
    }
    return config;
}

GenerationDefaults read_gguf_generation_defaults(const GgufFile& file, const GgufVocabulary& vocabulary) {
    GenerationDefaults defaults;
    const auto has_token = [&](std::string_view spelling) {
        return std::ranges::find(vocabulary.tokens, spelling) != vocabulary.tokens.end();
    };
    const auto add_end = [&](std::optional<std::int64_t> id) {
        if (!id || *id < 0 || *id >= static_cast<std::int64_t>(vocabulary.tokens.size())) return;
        const auto token = static_cast<TokenId>(*id);
        if (id != vocabulary.eos_id && ends_message_alone(vocabulary.tokens[token], has_token)) return;
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
    const GgufValue* suppressed = file.find("tokenizer.ggml.suppress_tokens");
    const auto ids = suppressed != nullptr ? suppressed->integers() : std::nullopt;
    if (suppressed != nullptr && !ids)
        throw FormatError(
            fmt::format("{}: metadata tokenizer.ggml.suppress_tokens is {}; a list of token ids is needed", file.name(),
                        suppressed->to_text()));
    if (ids)
        for (const std::int64_t id : *ids)
            if (id >= 0 && id < std::ssize(vocabulary.tokens))
                defaults.suppressed_tokens.push_back(static_cast<TokenId>(id));
    tidy_suppressed_tokens(defaults, std::ssize(vocabulary.tokens));
    return defaults;
}

}  // namespace slipstream
