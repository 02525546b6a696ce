#include "runtime/formats/hf_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "runtime/formats/family.h"
#include "runtime/formats/hf_rope.h"
#include "runtime/text/json_builder.h"
#include "runtime/text/json_fields.h"
#include "runtime/text/printable.h"

namespace slipstream {

namespace {

/// The family of a config.json, and whether its fields are in "text_config".
struct FamilyChoice {
    const Family& family;
    bool is_nested = false;
};

FamilyChoice family_of(const JsonFields& fields) {
    std::string class_name;
    if (const auto* names = fields.find("architectures")) {
        if (!names->is_array() || names->empty() || !names->front().is_string())
            fields.fail("architectures", "is not a list of names");
        class_name = names->front().get<std::string>();
    }
    const std::string model_type = fields.string("model_type").value_or("");
    std::string inner_type;
    if (class_name.empty() && model_type.empty())
        fields.fail("architectures", "is missing; is this a language model's config.json?");
    std::vector<std::string_view> served;
    std::vector<std::string_view> served_inside;
    for (const Family* family : kFamilies) {
        if (!class_name.empty() && family->hf_outer_class == class_name) {
            const auto* text = fields.object("text_config");
            if (text == nullptr) fields.fail("text_config", "is missing");
            inner_type = JsonFields(*text, fields.name()).string("model_type").value_or("");
            if (inner_type.empty() || inner_type == family->hf_model_type) return {*family, true};
            served_inside.push_back(family->hf_model_type);
        }
        if ((class_name.empty() ? family->hf_model_type == model_type : family->hf_class == class_name))
            return {*family, false};
        served.push_back(family->hf_class.empty() ? family->hf_outer_class : family->hf_class);
    }
    if (!served_inside.empty())
        throw Unsupported(fmt::format("{}: text model \"{}\" inside \"{}\" is not served (served: {})", fields.name(),
                                      printable(inner_type), printable(class_name), fmt::join(served_inside, ", ")));
    throw Unsupported(fmt::format("{}: architecture \"{}\" is not served (served: {})", fields.name(),
                                  printable(class_name.empty() ? model_type : class_name), fmt::join(served, ", ")));
}

void refuse_what_is_not_served(const JsonFields& fields, const Family& family) {
    const HfDefaults& defaults = family.hf_defaults;
    for (const char* key : {"hidden_act", "hidden_activation"}) {
        auto activation = fields.string(key).value_or(std::string(defaults.activation));
        if (activation == "swish") activation = "silu";  // another name of the same function
        if (activation != defaults.activation)
            throw Unsupported(fmt::format("{}: activation \"{}\" is not served (served: {})", fields.name(),
                                          printable(activation), defaults.activation));
    }
    if (fields.boolean("mlp_bias").value_or(false))
        throw Unsupported(fmt::format("{}: mlp_bias (a bias in the feed-forward part) is not served", fields.name()));
    if (family.hf_has_experts) return;
    for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"})
        if (const auto n_experts = fields.integer(key); n_experts && *n_experts > 0)
            throw Unsupported(
                fmt::format("{}: a mixture of {} experts, which is not served", fields.name(), *n_experts));
}

// Throws Unsupported if the weights are quantised in a way that the family does not have. `outer` is the whole file: in
// a nested model, "quantization_config" may be there instead of in `text`.
void refuse_quantised_weights(const JsonFields& text, const JsonFields& outer, const Family& family) {
    for (const JsonFields* fields : {&text, &outer}) {
        const auto* quantization = fields->object("quantization_config");
        if (quantization == nullptr) continue;
        const JsonFields inner(*quantization, fields->name());
        if (!family.hf_quantisation.empty() && inner.string("quant_method") == family.hf_quantisation) continue;
        throw Unsupported(fmt::format(
            "{}: weights quantised by \"{}\" are not served; use a directory of this model in F32, F16 or BF16, or a "
            "GGUF file of it",
            fields->name(), printable(inner.string("quant_method").value_or("?"))));
    }
}

std::int64_t read_head_dim(const JsonFields& fields, const HfDefaults& defaults, std::int64_t d_model,
                           std::int64_t n_q_heads) {
    if (const auto given = fields.integer("head_dim")) return *given;
    if (defaults.head_dim != 0 && !fields.has("head_dim")) return defaults.head_dim;
    if (n_q_heads < 1 || d_model % n_q_heads != 0)
        fields.fail("head_dim",
                    fmt::format("is missing, and hidden_size {} does not divide among {} heads", d_model, n_q_heads));
    return d_model / n_q_heads;
}

std::optional<DType> read_dtype(const JsonFields& fields) {
    auto text = fields.string("dtype");
    if (!text) text = fields.string("torch_dtype");
    if (!text) return std::nullopt;
    if (text->starts_with("torch.")) *text = text->substr(6);
    if (*text == "bfloat16") return DType::BF16;
    if (*text == "float16") return DType::F16;
    if (*text == "float32") return DType::F32;
    return std::nullopt;  // another name: the types of the tensors are used
}

// Returns what `read` finds in the configuration of the text model, or if that is nothing, in the whole configuration.
template <typename Read>
auto read_either(const JsonFields& text, const JsonFields& outer, const Read& read) {
    auto value = read(text);
    return value ? value : read(outer);
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
    const JsonFields outer(json, name);
    const auto [family, is_nested] = family_of(outer);
    const HfDefaults& defaults = family.hf_defaults;
    const JsonFields fields(is_nested ? *outer.object("text_config") : json, name);
    refuse_what_is_not_served(fields, family);
    refuse_quantised_weights(fields, outer, family);
    HfConfig result;
    result.is_nested = is_nested;
    ModelConfig& config = result.model;
    config.family = family.name;
    config.name = outer.string("_name_or_path").value_or("");
    config.d_model = fields.required("hidden_size");
    // Models whose layers all have experts need not have it; the other ones check what they get.
    const std::int64_t d_ff =
        family.hf_has_experts ? fields.integer("intermediate_size").value_or(0) : fields.required("intermediate_size");
    const std::int64_t n_layers = fields.required("num_hidden_layers");
    const auto required = [&](const char* key, std::int64_t absent) {
        return absent == 0 ? fields.required(key) : fields.integer(key).value_or(absent);
    };
    AttentionConfig attention{.n_q_heads = required("num_attention_heads", defaults.n_q_heads)};
    const std::int64_t absent_kv_heads = defaults.n_kv_heads != 0 ? defaults.n_kv_heads : attention.n_q_heads;
    attention.n_kv_heads = fields.integer("num_key_value_heads")
                               .value_or(fields.has("num_key_value_heads") ? attention.n_q_heads : absent_kv_heads);
    config.vocab = required("vocab_size", defaults.vocab);
    config.context_tokens = required("max_position_embeddings", defaults.context_tokens);
    attention.head_dim = read_head_dim(fields, defaults, config.d_model, attention.n_q_heads);
    config.rms_eps = static_cast<float>(std::clamp(fields.number("rms_norm_eps").value_or(defaults.rms_eps), 0.0, 2.0));
    config.rope_layout = RopeLayout::Half;
    // In a nested model, the flag of the whole configuration counts, as in transformers; without it, the head is tied
    // if it has no tensor.
    const auto tied = outer.boolean("tie_word_embeddings");
    config.tied_embeddings = tied.value_or(!is_nested && defaults.tied_embeddings);
    result.is_tied_without_head = is_nested && !tied;
    config.ropes = {read_hf_rope(fields, defaults, config.context_tokens, attention.head_dim,
                                 defaults.rope_by_layer_type ? "full_attention" : nullptr)};
    result.dtype = read_either(fields, outer, read_dtype);
    config.kv_dtype = result.dtype.value_or(DType::F16);
    try {
        check_layer_count(n_layers);
        config.layers.assign(static_cast<std::size_t>(n_layers), {.mixer = attention, .feed_forward = {.d_ff = d_ff}});
        family.read_hf(fields, result);
        validate(config);
    } catch (const FormatError& error) {
        const std::string text = error.what();
        throw FormatError(text.starts_with(name) ? text : fmt::format("{}: {}", name, text));
    }
    const auto ids_in_either = [&](const char* key) {
        const auto ids = read_token_ids(outer, key);
        return ids.empty() ? read_token_ids(fields, key) : ids;
    };
    const auto bos = ids_in_either("bos_token_id");
    if (!bos.empty()) result.bos_id = bos.front();
    result.end_tokens = ids_in_either("eos_token_id");
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
    defaults.suppressed_tokens = read_token_ids(fields, "suppress_tokens");
    return defaults;
}

}  // namespace slipstream
