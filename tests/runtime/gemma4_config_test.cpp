// Configurations of Gemma 4: published fields and keys, both spellings, what is refused by name, and hostile ones.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "runtime/formats/hf_config.h"
#include "runtime/formats/model_files.h"
#include "runtime/model/rope.h"
#include "tests/support/error_text.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/golden_model.h"
#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A small text model of 7 layers; `more` fields, each beginning with a comma, may replace its own.
std::string text_config(const std::string& more) {
    const std::string text =
        fmt::format(R"({{"architectures":["Gemma4ForCausalLM"],"model_type":"gemma4_text","hidden_size":64,)"
                    R"("intermediate_size":96,"num_hidden_layers":7,"num_attention_heads":4,"vocab_size":100,)"
                    R"("num_key_value_heads":2,"head_dim":8,"hidden_size_per_layer_input":0{}}})",
                    more);
    return nlohmann::json::parse(text).dump();
}

ModelConfig parse(const std::string& json) {
    return parse_hf_config(json, "config.json").model;
}
std::string message(const std::string& json) {
    return error_text([&] { static_cast<void>(parse(json)); });
}

TEST(Gemma4Config, TakesTheDefaultsOfTheClass) {
    const ModelConfig config = parse(text_config(""));
    EXPECT_EQ(config.family, "gemma4");
    EXPECT_THAT(layer_windows(config), ElementsAre(512, 512, 512, 512, 512, 0, 0)) << "the last layer has no window";
    EXPECT_EQ(config.attention(5).head_dim, 512);
    EXPECT_EQ(config.attention(5).n_kv_heads, 2);
    EXPECT_EQ(config.attention(0).head_dim, 8);
    EXPECT_FALSE(config.attention(5).values_from_keys);
    EXPECT_TRUE(config.attention(5).norms_values);
    EXPECT_EQ(config.attention(0).scale(), 1.0F);
    EXPECT_EQ(config.attention(5).scale(), 1.0F);
    ASSERT_EQ(config.ropes.size(), 2U);
    EXPECT_EQ(config.attention(0).rope, 1U);
    EXPECT_EQ(config.attention(6).rope, 0U);
    EXPECT_EQ(config.ropes[0].theta, 1e6);
    EXPECT_EQ(config.ropes[0].n_rotated, 512);
    EXPECT_EQ(config.ropes[0].n_fixed_pairs, 192);
    EXPECT_EQ(config.ropes[1].theta, 1e4);
    EXPECT_EQ(config.ropes[1].n_rotated, 8);
    EXPECT_EQ(config.ropes[1].n_fixed_pairs, 0);
    EXPECT_EQ(config.logit_softcap, 0.0F);
    EXPECT_EQ(config.norm_offset, 0.0F);
    EXPECT_EQ(config.embedding_scale, 8.0F);
    EXPECT_EQ(config.context_tokens, 131072);
    EXPECT_TRUE(config.tied_embeddings);
}

// The angles of a layer without a window: base^(-2i/512) for the first 64 pairs, 0 for the others.
TEST(Gemma4Config, TheFirstQuarterOfThePairsRotates) {
    const ModelConfig config = parse(text_config(""));
    const auto ropes = rope_frequencies(config, 1024);
    ASSERT_EQ(ropes[0].inverse_frequency.size(), 256U);
    EXPECT_EQ(ropes[0].inverse_frequency[0], 1.0);
    EXPECT_DOUBLE_EQ(ropes[0].inverse_frequency[63], std::pow(1e6, -126.0 / 512.0));
    for (std::size_t i = 64; i < 256; ++i) EXPECT_EQ(ropes[0].inverse_frequency[i], 0.0) << i;
    EXPECT_EQ(describe_rope(config.ropes[0], 131072, 1024), "none, 64 of 256 pairs rotate");
}

TEST(Gemma4Config, HeadsOfLayersWithoutAWindowAreSpelledInTwoWays) {
    const std::string types =
        R"(,"attention_k_eq_v":true,"num_hidden_layers":2,"layer_types":["sliding_attention","full_attention"])";
    for (const char* heads : {R"(,"global_head_dim":16,"num_global_key_value_heads":1)",
                              R"(,"per_layer_config":{"1":{"head_dim":16,"num_key_value_heads":1}})",
                              R"(,"per_layer_config":{"01":{"head_dim":16,"num_key_value_heads":1}})"}) {
        SCOPED_TRACE(heads);
        const ModelConfig config = parse(text_config(types + heads));
        EXPECT_EQ(config.attention(0).head_dim, 8);
        EXPECT_EQ(config.attention(0).n_kv_heads, 2);
        EXPECT_EQ(config.attention(1).head_dim, 16);
        EXPECT_EQ(config.attention(1).n_kv_heads, 1);
        EXPECT_FALSE(config.attention(0).values_from_keys);
        EXPECT_TRUE(config.attention(1).values_from_keys);
        EXPECT_EQ(config.ropes[0].n_rotated, 16);
    }
    // Without "attention_k_eq_v" the number of kv heads is that of all layers.
    EXPECT_EQ(parse(text_config(R"(,"global_head_dim":16,"num_global_key_value_heads":1)")).attention(5).n_kv_heads, 2);
}

TEST(Gemma4Config, OtherModelsOfTheFamilyAreRefusedByName) {
    EXPECT_EQ(message(text_config(R"(,"hidden_size_per_layer_input":256)")),
              "config.json: per-layer embeddings (Gemma 4 E2B and E4B) are not served");
    EXPECT_EQ(message(R"({"architectures":["Gemma4ForCausalLM"],"hidden_size":64,"intermediate_size":96,)"
                      R"("num_hidden_layers":7})"),
              "config.json: per-layer embeddings (Gemma 4 E2B and E4B) are not served")
        << "the default of the class";
    EXPECT_EQ(message(text_config(R"(,"num_kv_shared_layers":18)")),
              "config.json: layers that use the KV of earlier ones (Gemma 4 E2B and E4B) are not served");
    EXPECT_EQ(message(R"({"architectures":["Gemma4UnifiedForCausalLM"],"hidden_size":64,"intermediate_size":96,)"
                      R"("num_hidden_layers":7,"enable_moe_block":true})"),
              "config.json: a mixture of experts is not served for gemma4_unified_text")
        << "transformers has none";
    EXPECT_EQ(message(text_config(R"(,"use_bidirectional_attention":"all")")),
              "config.json: attention that is not causal is not served");
    EXPECT_EQ(parse(text_config(R"(,"use_bidirectional_attention":"vision")")).family, "gemma4");
}

TEST(Gemma4Config, ExpertsAreThereIfTheFlagSaysSo) {
    const std::string counts = R"(,"num_experts":6,"top_k_experts":2,"moe_intermediate_size":24)";
    const ModelConfig config = parse(text_config(R"(,"enable_moe_block":true)" + counts));
    ASSERT_EQ(config.n_layers(), 7);
    for (const LayerConfig& layer : config.layers) {
        EXPECT_EQ(layer.feed_forward.d_ff, 96);
        EXPECT_EQ(layer.feed_forward.activation, GatedActivation::GeluTanh);
        EXPECT_EQ(layer.feed_forward.experts,
                  (ExpertsConfig{.n_experts = 6, .n_chosen = 2, .d_ff = 24, .router_norm_scale = 0.125F}));
    }
    for (const char* flag : {"", R"(,"enable_moe_block":false)", R"(,"enable_moe_block":null)"})
        EXPECT_FALSE(parse(text_config(flag + counts)).has_experts()) << flag;
}

TEST(Gemma4Config, HostileFieldsAreRefusedInOneLine) {
    const auto refused = [](const std::string& more) {
        const std::string text = message(text_config(more));
        EXPECT_THAT(text, HasSubstr("config.json")) << more;
        EXPECT_EQ(text.find('\n'), std::string::npos) << more;
        return text;
    };
    EXPECT_THAT(refused(R"(,"sliding_window":0)"), HasSubstr("field sliding_window is 0"));
    EXPECT_THAT(refused(R"(,"sliding_window":-5,"layer_types":["sliding_attention"])"), HasSubstr("is -5"));
    EXPECT_THAT(refused(R"(,"layer_types":["full_attention"])"), HasSubstr("is not a list of 7 layers"));
    EXPECT_THAT(refused(R"(,"global_head_dim":0)"), HasSubstr("0"));
    EXPECT_THAT(refused(R"(,"global_head_dim":-2)"), HasSubstr("-2"));
    EXPECT_THAT(refused(R"(,"global_head_dim":7)"), HasSubstr("7"));
    EXPECT_THAT(refused(R"(,"global_head_dim":9223372036854775807)"), HasSubstr("head_dim"));
    EXPECT_THAT(refused(R"(,"attention_k_eq_v":true,"num_global_key_value_heads":3)"), HasSubstr("3 key/value heads"));
    EXPECT_THAT(refused(R"(,"attention_k_eq_v":true,"num_global_key_value_heads":0)"), HasSubstr("n_kv_heads"));
    EXPECT_THAT(refused(R"(,"per_layer_config":{"5":{"hidden_size":3}})"), HasSubstr("changes hidden_size"));
    EXPECT_THAT(refused(R"(,"per_layer_config":{"0":{"head_dim":16}})"), HasSubstr("heads of a windowed layer"));
    EXPECT_THAT(refused(R"(,"per_layer_config":{"5":{"head_dim":16}})"), HasSubstr("different heads"));
    EXPECT_THAT(refused(R"(,"per_layer_config":{"5":7})"), HasSubstr("field 5 is not an object"));
    EXPECT_THAT(refused(R"(,"rope_parameters":{"full_attention":{"rope_theta":1e6}})"),
                HasSubstr("rope_parameters has no sliding_attention"));
    EXPECT_THAT(refused(R"(,"rope_parameters":{"full_attention":{"rope_type":"proportional","rope_theta":1e6,)"
                        R"("partial_rotary_factor":2},"sliding_attention":{"rope_theta":1e4}})"),
                HasSubstr("partial_rotary_factor"));
    EXPECT_THAT(refused(R"(,"rope_parameters":{"full_attention":{"rope_type":"twisted","rope_theta":1e6},)"
                        R"("sliding_attention":{"rope_theta":1e4}})"),
                HasSubstr("\"twisted\" is not served"));
    EXPECT_THAT(refused(R"(,"rope_scaling":{"rope_type":"linear","factor":8})"), HasSubstr("rope_scaling"));
    EXPECT_THAT(refused(R"(,"final_logit_softcapping":-1)"), HasSubstr("softcap of logits is -1"));
    EXPECT_THAT(refused(R"(,"intermediate_size":0)"), HasSubstr("intermediate_size is missing, or below 1"));
    EXPECT_THAT(refused(R"(,"intermediate_size":null)"), HasSubstr("intermediate_size is missing, or below 1"));
    const auto experts = [&](const std::string& counts) { return refused(R"(,"enable_moe_block":true)" + counts); };
    EXPECT_THAT(experts(""), HasSubstr("num_experts is missing"));
    EXPECT_THAT(experts(R"(,"num_experts":6)"), HasSubstr("top_k_experts is missing"));
    EXPECT_THAT(experts(R"(,"num_experts":6,"top_k_experts":2)"), HasSubstr("moe_intermediate_size is missing"));
    EXPECT_THAT(experts(R"(,"num_experts":0,"top_k_experts":2,"moe_intermediate_size":24)"),
                HasSubstr("num_experts is 0; a mixture has experts"));
    EXPECT_THAT(experts(R"(,"num_experts":6,"top_k_experts":7,"moe_intermediate_size":24)"),
                HasSubstr("7 experts are chosen for each token; 1 to 6 can be"));
    EXPECT_THAT(experts(R"(,"num_experts":6,"top_k_experts":-1,"moe_intermediate_size":24)"),
                HasSubstr("-1 experts are chosen for each token"));
    EXPECT_THAT(experts(R"(,"num_experts":1099511627776,"top_k_experts":2,"moe_intermediate_size":24)"),
                HasSubstr("number of experts is 1099511627776"));
    EXPECT_THAT(experts(R"(,"num_experts":6,"top_k_experts":2,"moe_intermediate_size":9223372036854775807)"),
                HasSubstr("width of an expert is 9223372036854775807"));
    EXPECT_THAT(experts(R"(,"num_experts":6,"top_k_experts":2,"moe_intermediate_size":24,"intermediate_size":0)"),
                HasSubstr("intermediate_size is missing, or below 1"));
    EXPECT_THAT(refused(R"(,"hidden_activation":"gelu")"), HasSubstr("\"gelu\" is not served"));
}

// The 12B model would write marks of images into texts.
TEST(Gemma4Config, TokensAreSuppressedByTheModel) {
    const auto read = [](const std::string& json) { return parse_generation_config(json, "generation_config.json"); };
    EXPECT_THAT(read(R"({"eos_token_id":[1,106,50],"suppress_tokens":[258883,258882]})").suppressed_tokens,
                ElementsAre(258883, 258882));
    EXPECT_THAT(read(R"({"suppress_tokens":null})").suppressed_tokens, testing::IsEmpty());
    EXPECT_THAT(error_text([&] { static_cast<void>(read(R"({"suppress_tokens":["x"]})")); }),
                HasSubstr("suppress_tokens"));
}

// The GGUF form of a golden model, to change.
class Gemma4Gguf : public testing::Test {
protected:
    static constexpr std::uint32_t kF32 = 0;

    [[nodiscard]] ModelConfig config() const { return open()->config(); }
    [[nodiscard]] std::string message() const {
        const std::string text = error_text([&] { static_cast<void>(open()->weights()); });
        EXPECT_EQ(text.find('\n'), std::string::npos);
        return text;
    }
    [[nodiscard]] std::unique_ptr<ModelFiles> open() const {
        const TempFolder folder;
        return ModelFiles::open(folder.write("model.gguf", file.bytes()));
    }
    static GgufBytes counts(const std::vector<std::int32_t>& values) {
        std::vector<GgufBytes> bytes;
        for (const std::int32_t value : values) bytes.push_back(gguf_scalar(value));
        return gguf_array(bytes);
    }
    void set_divisors(const std::vector<float>& values) {
        file.tensor("rope_freqs.weight", kF32, {std::ssize(values)},
                    std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
    }

    GgufWriter file = golden_gguf(load_golden_model("gemma4"));
};

// The keys and tensors that the converter writes give what config.json says.
TEST_F(Gemma4Gguf, KeysSayWhatTheFieldsSay) {
    const ModelConfig fields = parse_hf_config(load_golden_model("gemma4").config_json, "config.json").model;
    const ModelConfig keys = config();
    EXPECT_EQ(keys.family, "gemma4");
    ASSERT_EQ(keys.n_layers(), fields.n_layers());
    for (std::int64_t layer = 0; layer < keys.n_layers(); ++layer) {
        EXPECT_EQ(keys.attention(layer), fields.attention(layer)) << layer;
        EXPECT_EQ(keys.layers[layer].feed_forward, fields.layers[layer].feed_forward) << layer;
    }
    for (std::size_t rope = 0; rope < 2; ++rope) {
        EXPECT_EQ(keys.ropes[rope].theta, fields.ropes[rope].theta);
        EXPECT_EQ(keys.ropes[rope].n_rotated, fields.ropes[rope].n_rotated);
        EXPECT_EQ(keys.ropes[rope].n_fixed_pairs, fields.ropes[rope].n_fixed_pairs);
        EXPECT_EQ(keys.ropes[rope].scaling.kind, RopeScalingKind::None);
    }
    EXPECT_EQ(keys.embedding_scale, fields.embedding_scale);
    EXPECT_EQ(keys.logit_softcap, fields.logit_softcap);
    EXPECT_TRUE(keys.tied_embeddings);
    EXPECT_EQ(keys.n_kv_groups(), 1);
}

TEST_F(Gemma4Gguf, TokensAreSuppressedByTheModel) {
    EXPECT_THAT(open()->generation_defaults().suppressed_tokens, testing::IsEmpty());
    file.set("tokenizer.ggml.suppress_tokens", counts({7, 5, 64, 7, -1}));
    EXPECT_THAT(open()->generation_defaults().suppressed_tokens, ElementsAre(5, 7))
        << "ids of the vocabulary, each once";
    file.set("tokenizer.ggml.suppress_tokens", gguf_string("7"));
    EXPECT_THAT(message(), HasSubstr("tokenizer.ggml.suppress_tokens is"));
}

TEST_F(Gemma4Gguf, AFusedProjectionIsCut) {
    const auto apart = open()->weights();
    const GoldenModel golden = load_golden_model("gemma4");
    for (int layer = 0; layer < 4; ++layer) {
        std::string rows;
        std::int64_t n_rows = 0;
        for (const std::string part : {"q", "k", "v"}) {
            if (part == "v" && layer % 2 == 1) continue;
            for (const GoldenTensor& tensor : golden.tensors) {
                if (tensor.name != fmt::format("model.layers.{}.self_attn.{}_proj.weight", layer, part)) continue;
                const std::vector<float> values = golden_values(tensor);
                rows.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
                n_rows += tensor.shape[0];
            }
            file.erase_tensor(fmt::format("blk.{}.attn_{}.weight", layer, part));
        }
        file.tensor(fmt::format("blk.{}.attn_qkv.weight", layer), kF32, {n_rows, 40}, rows);
    }
    const auto files = open();
    EXPECT_FALSE(files->config().attention(0).values_from_keys);
    EXPECT_TRUE(files->config().attention(1).values_from_keys);
    const ModelWeights fused = files->weights();
    for (int layer = 0; layer < 4; ++layer)
        for (const TensorRole role : {TensorRole::Q, TensorRole::K, TensorRole::V})
            EXPECT_EQ(fused.layers[layer][role].rows(), apart.layers[layer][role].rows()) << layer;
}

TEST_F(Gemma4Gguf, OtherModelsOfTheFamilyAreRefusedByName) {
    file.set<std::uint32_t>("gemma4.embedding_length_per_layer_input", 256);
    EXPECT_THAT(message(), HasSubstr("per-layer embeddings (Gemma 4 E2B and E4B) are not served "
                                     "(gemma4.embedding_length_per_layer_input = 256)"));
    // E2B: its feed-forward differs between layers, too.
    file.set("gemma4.feed_forward_length", counts({56, 56, 112, 112}));
    EXPECT_THAT(message(), HasSubstr("per-layer embeddings (Gemma 4 E2B and E4B) are not served"));
    file.set<std::uint32_t>("gemma4.embedding_length_per_layer_input", 0);
    file.set<std::uint32_t>("gemma4.attention.shared_kv_layers", 2);
    EXPECT_THAT(message(), HasSubstr("layers that use the KV of earlier ones (Gemma 4 E2B and E4B) are not served"));
}

TEST_F(Gemma4Gguf, HostileKeysAreRefusedInOneLine) {
    const GgufWriter good = file;
    const auto refused = [&](const std::string& part) {
        EXPECT_THAT(message(), HasSubstr(part));
        file = good;
    };
    file.erase("gemma4.attention.sliding_window_pattern");
    refused("gemma4.attention.sliding_window_pattern is missing");
    file.set("gemma4.attention.sliding_window_pattern", gguf_array({gguf_scalar(true)}));
    refused("a flag for each of 4 layers is needed");
    file.set<std::uint32_t>("gemma4.attention.sliding_window", 0);
    refused("gemma4.attention.sliding_window is 0");
    file.erase("gemma4.attention.sliding_window");
    refused("gemma4.attention.sliding_window is missing");
    file.erase("gemma4.attention.key_length_swa");
    refused("gemma4.attention.key_length_swa is missing");
    file.set<std::uint32_t>("gemma4.attention.value_length_swa", 4);
    refused("gemma4.attention.value_length_swa differ");
    file.set<std::uint32_t>("gemma4.attention.key_length_swa", 0xFFFFFFFF);
    file.set<std::uint32_t>("gemma4.attention.value_length_swa", 0xFFFFFFFF);
    refused("head_dim");
    file.set("gemma4.attention.head_count_kv", counts({3, 2}));
    refused("one integer for each of 4 layers is needed");
    file.set("gemma4.attention.head_count_kv", counts({3, 4, 3, 2}));
    refused("6 attention heads are not a multiple of 4");
    file.set("gemma4.attention.head_count_kv", counts({3, -1, 3, 2}));
    refused("n_kv_heads");
    file.erase_tensor("rope_freqs.weight");
    refused("rope_freqs.weight is missing");
    set_divisors({1, 1, 1, 1});
    refused("rope_freqs.weight is served with 10 divisors");
    set_divisors({1, 1, 2, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F});
    refused("first 1, then 1e30");
    set_divisors({1e30F, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F, 1});
    refused("first 1, then 1e30");
    file.erase_tensor("blk.1.attn_k_norm.weight");
    refused("tensor blk.1.attn_k_norm.weight [20] is missing");
    file.erase_tensor("blk.2.post_ffw_norm.weight");
    refused("tensor blk.2.post_ffw_norm.weight [40] is missing");
    file.floats("blk.1.layer_output_scale.weight", {2});
    refused("tensor blk.1.layer_output_scale.weight has shape [2]");
    file.erase_tensor("blk.0.layer_output_scale.weight");
    EXPECT_EQ(open()->weights().layers[0][TensorRole::OutputScale].rank, 0) << "a layer without a scale has 1";
}

class Gemma4MixtureGguf : public Gemma4Gguf {
protected:
    Gemma4MixtureGguf() { file = golden_gguf(load_golden_model("gemma4_moe")); }
};

TEST_F(Gemma4MixtureGguf, KeysSayWhatTheFieldsSay) {
    const ModelConfig fields = parse_hf_config(load_golden_model("gemma4_moe").config_json, "config.json").model;
    const ModelConfig keys = config();
    ASSERT_EQ(keys.n_layers(), fields.n_layers());
    for (std::int64_t layer = 0; layer < keys.n_layers(); ++layer) {
        EXPECT_EQ(keys.attention(layer), fields.attention(layer)) << layer;
        EXPECT_EQ(keys.layers[layer].feed_forward, fields.layers[layer].feed_forward) << layer;
    }
    EXPECT_EQ(keys.layers[3].feed_forward.d_ff, 56);
    EXPECT_EQ(keys.experts(3), (ExpertsConfig{.n_experts = 8,
                                              .n_chosen = 2,
                                              .d_ff = 22,
                                              .router_norm_scale = static_cast<float>(1.0 / std::sqrt(40.0))}));
}

TEST_F(Gemma4MixtureGguf, HostileKeysAndTensorsAreRefusedInOneLine) {
    const GgufWriter good = file;
    const auto refused = [&](const std::string& part) {
        EXPECT_THAT(message(), HasSubstr(part));
        file = good;
    };
    file.set<std::uint32_t>("gemma4.expert_count", 0xFFFFFFFF);
    refused("number of experts is 4294967295; 1 to 4096 can be served");
    file.set("gemma4.expert_count", std::int32_t{-1});
    refused("gemma4.expert_count = -1; a mixture has experts");
    file.set<std::uint32_t>("gemma4.expert_count", 9);
    refused("tensor blk.0.ffn_gate_inp.weight has shape [8, 40], the configuration asks for [9, 40]");
    // Without the count, the file has tensors that the model does not.
    file.erase("gemma4.expert_count");
    refused("tensor blk.0.ffn_gate_inp.weight is there, but the configuration says that the layer has no experts");
    file.set<std::uint32_t>("gemma4.expert_used_count", 9);
    refused("9 experts are chosen for each token; 1 to 8 can be");
    file.erase("gemma4.expert_used_count");
    refused("gemma4.expert_used_count is missing");
    file.erase("gemma4.expert_feed_forward_length");
    refused("gemma4.expert_feed_forward_length is missing");
    file.set<std::uint32_t>("gemma4.expert_feed_forward_length", 23);
    refused("tensor blk.0.ffn_gate_up_exps.weight has shape [8, 44, 40], the configuration asks for [8, 46, 40]");
    file.set<std::uint32_t>("gemma4.expert_gating_func", 2);
    refused("gemma4.expert_gating_func = 2 is not served");
    file.erase("gemma4.feed_forward_length");
    refused("gemma4.feed_forward_length is missing, or below 1");
    for (const auto& [tensor, shape] : {std::pair{"ffn_gate_inp.weight", "[8, 40]"},
                                        {"ffn_gate_inp.scale", "[40]"},
                                        {"ffn_down_exps.scale", "[8]"},
                                        {"pre_ffw_norm_2.weight", "[40]"},
                                        {"post_ffw_norm_1.weight", "[40]"},
                                        {"post_ffw_norm_2.weight", "[40]"},
                                        {"post_ffw_norm.weight", "[40]"},
                                        {"ffn_norm.weight", "[40]"},
                                        {"ffn_up.weight", "[56, 40]"},
                                        {"ffn_down_exps.weight", "[8, 40, 22]"}}) {
        file.erase_tensor(fmt::format("blk.2.{}", tensor));
        refused(fmt::format("tensor blk.2.{} {} is missing", tensor, shape));
    }
    file.erase_tensor("blk.1.ffn_gate_up_exps.weight");
    refused("tensor blk.1.ffn_gate_exps.weight [8, 22, 40] is missing");
    file.floats("blk.1.ffn_down_exps.scale", {9});
    refused("tensor blk.1.ffn_down_exps.scale has shape [9], the configuration asks for [8]");
    file.floats("blk.1.ffn_up_exps.scale", {8});
    refused("tensor blk.1.ffn_up_exps.scale: a model with this part is not served");
    file.floats("blk.1.ffn_gate_inp.bias", {8});
    refused("tensor blk.1.ffn_gate_inp.bias: a model with this part is not served");
}

TEST(Gemma4MixtureTensors, MissingAndWrongOnesAreNamed) {
    const auto refused = [](const std::string& name, const std::vector<std::int64_t>& shape) {
        GoldenModel golden = load_golden_model("gemma4_moe");
        const std::string full = "model.layers.1." + name;
        EXPECT_EQ(std::erase_if(golden.tensors, [&](const GoldenTensor& tensor) { return tensor.name == full; }), 1U);
        if (!shape.empty()) golden.tensors.push_back({full, shape});
        const TempFolder folder;
        write_hugging_face(golden, folder.path());
        return error_text([&] { static_cast<void>(ModelFiles::open(folder.path())->weights()); });
    };
    for (const char* norm : {"pre_feedforward_layernorm_2.weight", "post_feedforward_layernorm_1.weight",
                             "post_feedforward_layernorm_2.weight", "router.scale"})
        EXPECT_THAT(refused(norm, {}), HasSubstr(fmt::format("tensor model.layers.1.{} [40] is missing", norm)));
    EXPECT_THAT(refused("router.per_expert_scale", {}), HasSubstr("per_expert_scale [8] is missing"));
    EXPECT_THAT(refused("router.proj.weight", {}), HasSubstr("router.proj.weight [8, 40] is missing"));
    EXPECT_THAT(refused("router.proj.weight", {7, 40}), HasSubstr("has shape [7, 40]"));
    EXPECT_THAT(refused("experts.gate_up_proj", {}),
                HasSubstr("tensor model.layers.1.experts.gate_up_proj [8, 44, 40] is missing"));
    EXPECT_THAT(refused("experts.gate_up_proj", {7, 44, 40}), HasSubstr("has shape [7, 44, 40]"));
    EXPECT_THAT(refused("experts.gate_up_proj", {8, 40, 44}), HasSubstr("has shape [8, 40, 44]"));
    EXPECT_THAT(refused("experts.down_proj", {}),
                HasSubstr("tensor model.layers.1.experts.down_proj [8, 40, 22] is missing"));
    EXPECT_THAT(refused("experts.down_proj", {8, 22, 40}), HasSubstr("has shape [8, 22, 40]"));
    EXPECT_THAT(refused("mlp.gate_proj.weight", {}), HasSubstr("mlp.gate_proj.weight [56, 40] is missing"));
}

// A family without this tensor does not ignore it.
TEST(Gemma4Tensors, AScaleOfALayerIsRefusedInOtherFamilies) {
    GgufWriter file = tiny_llama_gguf();
    file.floats("blk.1.layer_output_scale.weight", {1});
    const TempFolder folder;
    const auto path = folder.write("model.gguf", file.bytes());
    EXPECT_THAT(error_text([&] { static_cast<void>(ModelFiles::open(path)->weights()); }),
                HasSubstr("tensor blk.1.layer_output_scale.weight: a model with this part is not served"));
}

}  // namespace
}  // namespace slipstream
