// The published configurations of Gemma 4: every field and key is used, or on a list of those that are ignored, with
// the reason. A field counts as used if another value of it changes what is read, or is refused.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "runtime/formats/hf_config.h"
#include "runtime/formats/model_files.h"
#include "tests/support/golden_model.h"
#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

using Json = nlohmann::json;

Json layer_types(int n_layers) {
    Json types = Json::array();
    for (int layer = 1; layer <= n_layers; ++layer)
        types.push_back(layer % 6 == 0 ? "full_attention" : "sliding_attention");
    return types;
}

enum class Size : std::uint8_t { Dense12b, Dense31b, Mixture26b };

// The text model's fields in google/gemma-4-12B-it, google/gemma-4-31B-it and google/gemma-4-26B-A4B-it.
Json text_fields(Size size) {
    const bool is_12b = size == Size::Dense12b;
    const bool has_experts = size == Size::Mixture26b;
    const auto of = [&](int of_12b, int of_31b, int of_26b) { return is_12b ? of_12b : has_experts ? of_26b : of_31b; };
    return {{"attention_bias", false},
            {"attention_dropout", 0.0},
            {"attention_k_eq_v", true},
            {"bos_token_id", 2},
            {"enable_moe_block", has_experts},
            {"eos_token_id", 1},
            {"final_logit_softcapping", 30.0},
            {"global_head_dim", 512},
            {"head_dim", 256},
            {"hidden_activation", "gelu_pytorch_tanh"},
            {"hidden_size", of(3840, 5376, 2816)},
            {"hidden_size_per_layer_input", 0},
            {"initializer_range", 0.02},
            {"intermediate_size", of(15360, 21504, 2112)},
            {"layer_types", layer_types(of(48, 60, 30))},
            {"max_position_embeddings", 262144},
            {"model_type", is_12b ? "gemma4_unified_text" : "gemma4_text"},
            {"moe_intermediate_size", has_experts ? Json(704) : Json(nullptr)},
            {"num_attention_heads", of(16, 32, 16)},
            {"num_experts", has_experts ? Json(128) : Json(nullptr)},
            {"num_global_key_value_heads", of(1, 4, 2)},
            {"num_hidden_layers", of(48, 60, 30)},
            {"num_key_value_heads", of(8, 16, 8)},
            {"num_kv_shared_layers", 0},
            {"pad_token_id", 0},
            {"rms_norm_eps", 1e-6},
            {"rope_parameters",
             {{"full_attention", {{"partial_rotary_factor", 0.25}, {"rope_theta", 1e6}, {"rope_type", "proportional"}}},
              {"sliding_attention", {{"rope_theta", 1e4}, {"rope_type", "default"}}}}},
            {"sliding_window", 1024},
            {"tie_word_embeddings", true},
            {"top_k_experts", has_experts ? Json(8) : Json(nullptr)},
            {"use_bidirectional_attention", "vision"},
            {"use_cache", true},
            {"use_double_wide_mlp", false},
            {"vocab_size", 262144},
            {"vocab_size_per_layer_input", 262144}};
}

Json folder_fields(Size size) {
    const bool is_12b = size == Size::Dense12b;
    return {{"architectures", {is_12b ? "Gemma4UnifiedForConditionalGeneration" : "Gemma4ForConditionalGeneration"}},
            {"audio_config", is_12b ? Json{{"model_type", "gemma4_unified_audio"}} : Json(nullptr)},
            {"audio_token_id", 258881},
            {"boa_token_id", 256000},
            {"boi_token_id", 255999},
            {"dtype", "bfloat16"},
            {"eoa_token_index", 258883},
            {"eoi_token_id", 258882},
            {"eos_token_id", {1, 106}},
            {"image_token_id", 258880},
            {"initializer_range", 0.02},
            {"model_type", is_12b ? "gemma4_unified" : "gemma4"},
            {"text_config", text_fields(size)},
            {"tie_word_embeddings", true},
            {"transformers_version", "5.10.0.dev0"},
            {"video_token_id", 258884},
            {"vision_config", {{"model_type", is_12b ? "gemma4_unified_vision" : "gemma4_vision"}}},
            {"vision_soft_tokens_per_image", 280}};
}

// Fields that change nothing that is computed for a text, and why.
const std::map<std::string, std::string> kIgnoredOfText{
    {"attention_dropout", "of training"},
    {"bos_token_id", "the whole configuration has it, or the tokenizer"},
    {"eos_token_id", "generation_config.json or the whole configuration has it"},
    {"initializer_range", "of training"},
    {"pad_token_id", "of batches of training"},
    {"use_cache", "of the Python program"},
    {"use_double_wide_mlp", "of layers that use the KV of earlier ones, which num_kv_shared_layers refuses"},
    {"vocab_size_per_layer_input", "of per-layer embeddings, which hidden_size_per_layer_input refuses"}};
// The same of dense models.
const std::map<std::string, std::string> kIgnoredOfExperts{
    {"moe_intermediate_size", "of experts, which enable_moe_block switches off"},
    {"num_experts", "of experts, which enable_moe_block switches off"},
    {"top_k_experts", "of experts, which enable_moe_block switches off"}};
const std::map<std::string, std::string> kIgnoredOfFolder{{"audio_config", "of the audio model"},
                                                          {"audio_token_id", "of the audio model"},
                                                          {"boa_token_id", "of the audio model"},
                                                          {"eoa_token_index", "of the audio model"},
                                                          {"boi_token_id", "of the vision model"},
                                                          {"eoi_token_id", "of the vision model"},
                                                          {"image_token_id", "of the vision model"},
                                                          {"video_token_id", "of the vision model"},
                                                          {"vision_config", "of the vision model"},
                                                          {"vision_soft_tokens_per_image", "of the vision model"},
                                                          {"initializer_range", "of training"},
                                                          {"model_type", "the class decides"},
                                                          {"transformers_version", "of the Python program"}};

// All that is read of a configuration, as text.
std::string described(const ModelConfig& config) {
    std::string text = fmt::format("{} {} {} {} {} {} {} {} {} {} {}", config.family, config.d_model, config.vocab,
                                   config.context_tokens, config.rms_eps, config.norm_offset, config.embedding_scale,
                                   config.logit_softcap, static_cast<int>(config.rope_layout), config.tied_embeddings,
                                   static_cast<int>(config.kv_dtype));
    for (const RopeConfig& rope : config.ropes)
        text += fmt::format("; rope {} {} {} {} {}", rope.theta, rope.n_rotated, rope.n_fixed_pairs,
                            static_cast<int>(rope.scaling.kind), rope.scaling.factor);
    for (const LayerConfig& layer : config.layers) {
        const AttentionConfig& a = layer.attention();
        text += fmt::format("; {} {} {} {} {} {} {} {} {} {} {}", a.n_q_heads, a.n_kv_heads, a.head_dim, a.window,
                            a.rope, a.scale(), a.softcap, a.norms_values, a.values_from_keys, layer.feed_forward.d_ff,
                            static_cast<int>(layer.feed_forward.activation));
        const ExpertsConfig& e = layer.feed_forward.experts;
        text += fmt::format(" {} {} {} {} {} {}", e.n_experts, e.n_chosen, e.d_ff, e.router_norm_scale,
                            static_cast<int>(e.weighting.score), e.weighting.normalized);
    }
    return text;
}

std::string described(const Json& folder) {
    try {
        const HfConfig read = parse_hf_config(folder.dump(), "config.json");
        std::string text = described(read.model) + fmt::format("; biases {}", static_cast<int>(read.biases.qkv_bias));
        for (const TokenId id : read.end_tokens) text += fmt::format(" {}", id);
        return text;
    } catch (const Error& error) {
        return fmt::format("refused: {}", error.what());
    }
}

// Returns a value for the field `key` that differs from `value` and has the same JSON type.
Json another(const std::string& key, const Json& value) {
    if (key == "layer_types") return Json::array({"full_attention"});
    if (key == "rope_parameters")
        return {{"full_attention", {{"rope_theta", 5.0}}}, {"sliding_attention", {{"rope_theta", 5.0}}}};
    if (key == "use_bidirectional_attention") return "all";
    if (value.is_boolean()) return !value.get<bool>();
    if (value.is_number_float()) return value.get<double>() * 2.0;
    if (value.is_number()) return value.get<std::int64_t>() == 0 ? 8 : value.get<std::int64_t>() / 2;
    if (value.is_array()) return Json::array({7});
    if (value.is_object()) return Json::object();
    if (value.is_null()) return 4;
    return "another";
}

class Published : public testing::TestWithParam<Size> {};

TEST_P(Published, FieldsAreUsedOrIgnoredForAReason) {
    const Json folder = folder_fields(GetParam());
    const std::string whole = described(folder);
    ASSERT_FALSE(whole.starts_with("refused")) << whole;
    const auto check = [&](const std::string& key, const std::map<std::string, std::string>& ignored,
                           const Json& changed) {
        EXPECT_EQ(described(changed) == whole, ignored.contains(key))
            << key << ": " << described(changed).substr(0, 200);
    };
    for (const auto& [key, value] : folder["text_config"].items()) {
        if (key == "tie_word_embeddings") continue;  // that of the whole configuration counts
        Json changed = folder;
        changed["text_config"][key] = another(key, value);
        const bool is_of_experts = kIgnoredOfExperts.contains(key);
        // In the class of the 12B model, a number of experts is refused.
        const bool is_ignored = GetParam() == Size::Dense31b || key != "num_experts";
        if (is_of_experts && GetParam() != Size::Mixture26b && is_ignored)
            check(key, kIgnoredOfExperts, changed);
        else
            check(key, kIgnoredOfText, changed);
    }
    for (const auto& [key, value] : folder.items()) {
        Json changed = folder;
        changed[key] = another(key, value);
        check(key, kIgnoredOfFolder, changed);
    }
}

TEST_P(Published, SizesAreThoseOfTheModel) {
    const ModelConfig config = parse_hf_config(folder_fields(GetParam()).dump(), "config.json").model;
    const std::int64_t period = 6;
    for (std::int64_t layer = 0; layer < config.n_layers(); ++layer) {
        const bool is_full = layer % period == period - 1;
        EXPECT_EQ(config.attention(layer).head_dim, is_full ? 512 : 256);
        const std::int64_t full_kv_heads = GetParam() == Size::Dense12b ? 1 : GetParam() == Size::Dense31b ? 4 : 2;
        EXPECT_EQ(config.attention(layer).n_kv_heads, is_full ? full_kv_heads : GetParam() == Size::Dense31b ? 16 : 8);
        const bool has_experts = GetParam() == Size::Mixture26b;
        EXPECT_EQ(config.experts(layer).n_experts, has_experts ? 128 : 0);
        EXPECT_EQ(config.experts(layer).n_chosen, has_experts ? 8 : 0);
        EXPECT_EQ(config.experts(layer).d_ff, has_experts ? 704 : 0);
        if (has_experts) {
            EXPECT_EQ(config.layers[layer].feed_forward.d_ff, 2112);
        }
        EXPECT_EQ(config.attention(layer).values_from_keys, is_full);
        EXPECT_EQ(config.window(layer), is_full ? 0 : 1024);
    }
    EXPECT_EQ(config.ropes[0].n_fixed_pairs, 192);
    EXPECT_EQ(config.kv_dtype, DType::BF16);
    // The square root of d_model, rounded to bfloat16.
    EXPECT_EQ(config.embedding_scale, GetParam() == Size::Dense12b   ? 62.0F
                                      : GetParam() == Size::Dense31b ? 73.5F
                                                                     : 53.0F);
}

INSTANTIATE_TEST_SUITE_P(Models, Published, testing::Values(Size::Dense12b, Size::Dense31b, Size::Mixture26b),
                         [](const testing::TestParamInfo<Size>& parameter) {
                             return parameter.param == Size::Dense12b   ? "12B"
                                    : parameter.param == Size::Dense31b ? "31B"
                                                                        : "26B";
                         });

// The keys that converters write. Each is used: without it, or with another value, the file is read otherwise or
// refused.
TEST(PublishedKeys, AreUsedOrIgnoredForAReason) {
    const std::map<std::string, std::string> ignored{
        {"gemma4.attention.value_length_swa", "equal to key_length_swa, else refused"},
        {"gemma4.attention.shared_kv_layers", "0, else refused"},
        {"gemma4.embedding_length_per_layer_input", "0, else refused"},
        {"gemma4.rope.dimension_count", "the whole head, as without it"},
        {"gemma4.rope.dimension_count_swa", "the whole head, as without it"},
        {"general.file_type", "the tensors have their types"}};
    const GoldenModel golden = load_golden_model("gemma4_moe");
    const auto read = [&](GgufWriter file) -> std::string {
        const TempFolder folder;
        try {
            const auto files = ModelFiles::open(folder.write("model.gguf", file.bytes()));
            static_cast<void>(files->weights());
            return described(files->config()) + files->config().name;
        } catch (const Error& error) {
            return fmt::format("refused: {}", error.what());
        }
    };
    const std::string whole = read(golden_gguf(golden));
    ASSERT_FALSE(whole.starts_with("refused")) << whole;
    const std::vector<std::string> keys{"general.architecture",
                                        "general.name",
                                        "general.file_type",
                                        "gemma4.context_length",
                                        "gemma4.embedding_length",
                                        "gemma4.block_count",
                                        "gemma4.feed_forward_length",
                                        "gemma4.attention.head_count",
                                        "gemma4.attention.head_count_kv",
                                        "gemma4.attention.layer_norm_rms_epsilon",
                                        "gemma4.attention.sliding_window_pattern",
                                        "gemma4.attention.sliding_window",
                                        "gemma4.attention.key_length",
                                        "gemma4.attention.value_length",
                                        "gemma4.attention.key_length_swa",
                                        "gemma4.attention.value_length_swa",
                                        "gemma4.attention.shared_kv_layers",
                                        "gemma4.embedding_length_per_layer_input",
                                        "gemma4.rope.dimension_count",
                                        "gemma4.rope.dimension_count_swa",
                                        "gemma4.rope.freq_base",
                                        "gemma4.rope.freq_base_swa",
                                        "gemma4.final_logit_softcapping",
                                        "gemma4.expert_count",
                                        "gemma4.expert_used_count",
                                        "gemma4.expert_feed_forward_length"};
    for (const std::string& key : keys) {
        GgufWriter file = golden_gguf(golden);
        file.erase(key);
        EXPECT_EQ(read(file) == whole, ignored.contains(key)) << key << ": " << read(file).substr(0, 200);
    }
    // What is ignored if it is absent is checked if it is there.
    for (const char* key : {"gemma4.attention.value_length_swa", "gemma4.attention.shared_kv_layers",
                            "gemma4.embedding_length_per_layer_input", "gemma4.attention.value_length",
                            "gemma4.rope.dimension_count", "gemma4.rope.dimension_count_swa"}) {
        GgufWriter file = golden_gguf(golden);
        file.set<std::uint32_t>(key, 6);
        EXPECT_NE(read(file), whole) << key;
    }
}

}  // namespace
}  // namespace slipstream
