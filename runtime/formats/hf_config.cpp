#include "runtime/formats/hf_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/base/error.h"
#include "runtime/formats/hf_rope.h"
#include "runtime/text/json_fields.h"
#include "runtime/text/printable.h"

namespace slipstream {

namespace {

// An architecture, with the defaults of optional fields from its configuration class in transformers.
struct KnownArchitecture {
    std::string_view class_name;
    std::string_view model_type;
    Architecture architecture;
    std::int64_t context_tokens;
    std::int64_t n_kv_heads;  // 0: as many as query heads
    std::int64_t head_dim;    // 0: hidden_size / query heads
    double rms_eps;
};

constexpr std::array kArchitectures{
    KnownArchitecture{"LlamaForCausalLM", "llama", Architecture::Llama, 2048, 0, 0, 1e-6},
    KnownArchitecture{"MistralForCausalLM", "mistral", Architecture::Mistral, 131072, 8, 0, 1e-6},
    KnownArchitecture{"Qwen2ForCausalLM", "qwen2", Architecture::Qwen2, 32768, 32, 0, 1e-6},
    KnownArchitecture{"Qwen3ForCausalLM", "qwen3", Architecture::Qwen3, 32768, 32, 128, 1e-6},
    KnownArchitecture{"Phi3ForCausalLM", "phi3", Architecture::Phi3, 4096, 0, 0, 1e-5},
};

const KnownArchitecture& find_architecture(const JsonFields& fields) {
    std::string class_name;
    if (const auto* names = fields.find("architectures")) {
        if (!names->is_array() || names->empty() || !names->front().is_string())
            fields.fail("architectures", "is no list of names");
        class_name = names->front().get<std::string>();
    }
    const std::string model_type = fields.string("model_type").value_or("");
    if (class_name.empty() && model_type.empty())
        fields.fail("architectures", "is missing; is this a language model's config.json?");
    for (const KnownArchitecture& known : kArchitectures)
        if (class_name.empty() ? known.model_type == model_type : known.class_name == class_name) return known;
    std::vector<std::string_view> served;
    for (const KnownArchitecture& known : kArchitectures) served.push_back(known.class_name);
    throw Unsupported(fmt::format("{}: architecture \"{}\" is not served (served: {})", fields.name(),
                                  printable(class_name.empty() ? model_type : class_name), fmt::join(served, ", ")));
}

void refuse_what_is_not_served(const JsonFields& fields) {
    for (const char* key : {"hidden_act", "hidden_activation"}) {
        const auto activation = fields.string(key).value_or("silu");
        // "swish" is another name of silu.
        if (activation != "silu" && activation != "swish")
            throw Unsupported(fmt::format("{}: activation \"{}\" is not served (served: silu)", fields.name(),
                                          printable(activation)));
    }
    if (fields.boolean("mlp_bias").value_or(false))
        throw Unsupported(fmt::format("{}: mlp_bias (a bias in the feed-forward part) is not served", fields.name()));
    if (const auto* quantization = fields.object("quantization_config")) {
        const JsonFields inner(*quantization, fields.name());
        throw Unsupported(
            fmt::format("{}: weights quantised by \"{}\" are not served; use F32, F16, BF16 or a GGUF file",
                        fields.name(), printable(inner.string("quant_method").value_or("?"))));
    }
    for (const char* key : {"num_experts", "num_local_experts"})
        if (const auto n_experts = fields.integer(key); n_experts && *n_experts > 0)
            throw Unsupported(
                fmt::format("{}: a mixture of {} experts, which is not served", fields.name(), *n_experts));
}

AttentionBias read_bias(const JsonFields& fields, Architecture architecture) {
    if (architecture == Architecture::Qwen2) return AttentionBias::Qkv;
    const bool asked = fields.boolean("attention_bias").value_or(false) || fields.boolean("bias").value_or(false);
    if (!asked) return AttentionBias::None;
    if (architecture == Architecture::Llama || architecture == Architecture::Qwen3) return AttentionBias::QkvAndOut;
    // In transformers, Mistral and Phi-3 have no such parameter and ignore the field.
    return AttentionBias::None;
}

std::vector<std::int64_t> windows_of_layer_types(const JsonFields& fields, const nlohmann::json& types,
                                                 const ModelConfig& config, std::int64_t window) {
    if (!types.is_array() || static_cast<std::int64_t>(types.size()) != config.n_layers)
        fields.fail("layer_types", fmt::format("is no list of {} layers", config.n_layers));
    std::vector<std::int64_t> windows;
    for (const auto& type : types) {
        const std::string text = type.is_string() ? type.get<std::string>() : "?";
        if (text != "sliding_attention" && text != "full_attention")
            throw Unsupported(
                fmt::format("{}: layer type \"{}\" is not served (served: full_attention, sliding_attention)",
                            fields.name(), printable(text)));
        windows.push_back(text == "sliding_attention" ? window : 0);
    }
    return windows;
}

// Returns the sliding window of each layer; empty: none has one. Mistral and Phi-3 have one window for all layers; Qwen
// has one from max_window_layers on, or as layer_types says.
std::vector<std::int64_t> read_windows(const JsonFields& fields, const ModelConfig& config) {
    const Architecture architecture = config.architecture;
    if (architecture == Architecture::Llama) return {};
    const bool present = fields.find("sliding_window") != nullptr;
    std::int64_t window = fields.integer("sliding_window").value_or(0);
    const auto n_layers = static_cast<std::size_t>(config.n_layers);
    std::vector<std::int64_t> windows;
    if (architecture == Architecture::Qwen2 || architecture == Architecture::Qwen3) {
        if (!fields.boolean("use_sliding_window").value_or(false)) return {};
        if (!fields.has("sliding_window")) window = 4096;
        if (window <= 0 && !present) return {};
        if (const auto* types = fields.find("layer_types")) {
            windows = windows_of_layer_types(fields, *types, config, window);
        } else {
            windows.assign(n_layers, window);
            const std::int64_t first =
                std::clamp<std::int64_t>(fields.integer("max_window_layers").value_or(28), 0, config.n_layers);
            std::fill_n(windows.begin(), first, 0);
        }
    } else {
        if (!fields.has("sliding_window") && architecture == Architecture::Mistral) window = 4096;
        if (window <= 0 && !present) return {};
        windows.assign(n_layers, window);
    }
    if (present && window < 1) fields.fail("sliding_window", fmt::format("is {}", window));
    const bool none = std::all_of(windows.begin(), windows.end(), [](std::int64_t w) { return w == 0; });
    return none ? std::vector<std::int64_t>{} : windows;
}

std::int64_t read_head_dim(const JsonFields& fields, const KnownArchitecture& known, const ModelConfig& config) {
    if (const auto given = fields.integer("head_dim")) return *given;
    if (known.head_dim != 0 && !fields.has("head_dim")) return known.head_dim;
    if (config.n_q_heads < 1 || config.d_model % config.n_q_heads != 0)
        fields.fail("head_dim", fmt::format("is missing, and hidden_size {} does not divide among {} heads",
                                            config.d_model, config.n_q_heads));
    return config.d_model / config.n_q_heads;
}

std::optional<DType> read_dtype(const JsonFields& fields) {
    auto text = fields.string("dtype");
    if (!text) text = fields.string("torch_dtype");
    if (!text) return std::nullopt;
    if (text->starts_with("torch.")) *text = text->substr(6);
    if (*text == "bfloat16") return DType::BF16;
    if (*text == "float16") return DType::F16;
    if (*text == "float32") return DType::F32;
    return std::nullopt;  // another name: the tensors' own types are used
}

std::vector<TokenId> read_token_ids(const JsonFields& fields, const char* key) {
    std::vector<TokenId> ids;
    const auto* value = fields.find(key);
    if (value == nullptr) return ids;
    const auto add = [&](const nlohmann::json& element) {
        const std::int64_t id = fields.to_integer(element, key);
        // Some files write -1 for "none".
        if (id >= 0 && id <= std::numeric_limits<TokenId>::max()) ids.push_back(static_cast<TokenId>(id));
    };
    if (value->is_array()) {
        for (const auto& element : *value) add(element);
    } else {
        add(*value);
    }
    return ids;
}

}  // namespace

HfConfig parse_hf_config(std::string_view json_text, const std::string& name) {
    const nlohmann::json json = parse_json_object(json_text, name);
    const JsonFields fields(json, name);
    const KnownArchitecture& known = find_architecture(fields);
    refuse_what_is_not_served(fields);
    HfConfig result;
    ModelConfig& config = result.model;
    config.architecture = known.architecture;
    config.name = fields.string("_name_or_path").value_or("");
    config.d_model = fields.required("hidden_size");
    config.d_ff = fields.required("intermediate_size");
    config.n_layers = fields.required("num_hidden_layers");
    config.n_q_heads = fields.required("num_attention_heads");
    const std::int64_t absent_kv_heads = known.n_kv_heads != 0 ? known.n_kv_heads : config.n_q_heads;
    config.n_kv_heads = fields.integer("num_key_value_heads")
                            .value_or(fields.has("num_key_value_heads") ? config.n_q_heads : absent_kv_heads);
    config.vocab = fields.required("vocab_size");
    config.context_tokens = fields.integer("max_position_embeddings").value_or(known.context_tokens);
    config.head_dim = read_head_dim(fields, known, config);
    config.rms_eps = static_cast<float>(std::clamp(fields.number("rms_norm_eps").value_or(known.rms_eps), 0.0, 2.0));
    config.rope_layout = RopeLayout::Half;
    config.tied_embeddings = fields.boolean("tie_word_embeddings").value_or(false);
    read_hf_rope(fields, config);
    result.dtype = read_dtype(fields);
    config.kv_dtype = result.dtype.value_or(DType::F16);
    result.attention_bias = read_bias(fields, config.architecture);
    try {
        validate(config);
    } catch (const FormatError& error) {
        throw FormatError(fmt::format("{}: {}", name, error.what()));
    }
    config.layer_window = read_windows(fields, config);
    const auto bos = read_token_ids(fields, "bos_token_id");
    if (!bos.empty()) result.bos_id = bos.front();
    result.end_tokens = read_token_ids(fields, "eos_token_id");
    return result;
}

GenerationDefaults parse_generation_config(std::string_view json_text, const std::string& name) {
    const nlohmann::json json = parse_json_object(json_text, name);
    const JsonFields fields(json, name);
    GenerationDefaults defaults;
    defaults.end_tokens = read_token_ids(fields, "eos_token_id");
    defaults.temperature = fields.number("temperature");
    defaults.top_k = fields.integer("top_k");
    defaults.top_p = fields.number("top_p");
    defaults.min_p = fields.number("min_p");
    defaults.repeat_penalty = fields.number("repetition_penalty");
    defaults.do_sample = fields.boolean("do_sample");
    return defaults;
}

}  // namespace slipstream
