// Files of mixtures of experts: what configurations mean, what is refused by name, and hostile counts and shapes.
#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "runtime/formats/hf_config.h"
#include "runtime/formats/ignored_tensors.h"
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

// Published config.json of Qwen3-30B-A3B.
std::string qwen3_moe_config(const nlohmann::json& changes = nlohmann::json::object()) {
    nlohmann::json config = nlohmann::json::parse(
        R"({"architectures":["Qwen3MoeForCausalLM"],"attention_bias":false,"attention_dropout":0.0,"bos_token_id":151643,
            "decoder_sparse_step":1,"eos_token_id":151645,"head_dim":128,"hidden_act":"silu","hidden_size":2048,
            "initializer_range":0.02,"intermediate_size":6144,"max_position_embeddings":40960,"max_window_layers":48,
            "mlp_only_layers":[],"model_type":"qwen3_moe","moe_intermediate_size":768,"norm_topk_prob":true,
            "num_attention_heads":32,"num_experts":128,"num_experts_per_tok":8,"num_hidden_layers":48,
            "num_key_value_heads":4,"output_router_logits":false,"rms_norm_eps":1e-06,"rope_scaling":null,
            "rope_theta":1000000.0,"router_aux_loss_coef":0.001,"sliding_window":null,"tie_word_embeddings":false,
            "torch_dtype":"bfloat16","transformers_version":"4.51.0","use_cache":true,"use_sliding_window":false,
            "vocab_size":151936})");
    config.update(changes);
    return config.dump();
}

std::string mixtral_config(const nlohmann::json& changes = nlohmann::json::object()) {
    nlohmann::json config = nlohmann::json::parse(
        R"({"architectures":["MixtralForCausalLM"],"attention_dropout":0.0,"bos_token_id":1,"eos_token_id":2,
            "hidden_act":"silu","hidden_size":4096,"initializer_range":0.02,"intermediate_size":14336,
            "max_position_embeddings":32768,"model_type":"mixtral","num_attention_heads":32,"num_experts_per_tok":2,
            "num_hidden_layers":32,"num_key_value_heads":8,"num_local_experts":8,"output_router_logits":false,
            "rms_norm_eps":1e-05,"rope_theta":1000000.0,"router_aux_loss_coef":0.02,"sliding_window":null,
            "tie_word_embeddings":false,"torch_dtype":"bfloat16","transformers_version":"4.36.0","use_cache":true,
            "vocab_size":32000})");
    config.update(changes);
    return config.dump();
}

std::string glm_config(const nlohmann::json& changes = nlohmann::json::object()) {
    nlohmann::json config = nlohmann::json::parse(
        R"({"architectures":["Glm4MoeForCausalLM"],"attention_bias":true,"attention_dropout":0.0,
            "eos_token_id":[151329,151336,151338],"first_k_dense_replace":1,"head_dim":128,"hidden_act":"silu",
            "hidden_size":4096,"initializer_range":0.02,"intermediate_size":10944,"max_position_embeddings":131072,
            "model_type":"glm4_moe","moe_intermediate_size":1408,"n_group":1,"n_routed_experts":128,
            "n_shared_experts":1,"norm_topk_prob":true,"num_attention_heads":96,"num_experts_per_tok":8,
            "num_hidden_layers":46,"num_key_value_heads":8,"num_nextn_predict_layers":1,"pad_token_id":151329,
            "partial_rotary_factor":0.5,"rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":1000000,
            "routed_scaling_factor":1.0,"tie_word_embeddings":false,"topk_group":1,"torch_dtype":"bfloat16",
            "transformers_version":"4.54.0","use_cache":true,"use_qk_norm":false,"vocab_size":151552})");
    config.update(changes);
    return config.dump();
}

// Published config.json of gpt-oss-20b.
std::string gpt_oss_config(const nlohmann::json& changes = nlohmann::json::object()) {
    nlohmann::json config = nlohmann::json::parse(
        R"({"architectures":["GptOssForCausalLM"],"attention_bias":true,"attention_dropout":0.0,"eos_token_id":200002,
            "experts_per_token":4,"head_dim":64,"hidden_act":"silu","hidden_size":2880,"initial_context_length":4096,
            "initializer_range":0.02,"intermediate_size":2880,"max_position_embeddings":131072,"model_type":"gpt_oss",
            "num_attention_heads":64,"num_experts_per_tok":4,"num_hidden_layers":24,"num_key_value_heads":8,
            "num_local_experts":32,"output_router_logits":false,"pad_token_id":199999,
            "quantization_config":{"modules_to_not_convert":["model.layers.*.self_attn","model.layers.*.mlp.router",
                                                             "model.embed_tokens","lm_head"],"quant_method":"mxfp4"},
            "rms_norm_eps":1e-05,
            "rope_scaling":{"beta_fast":32.0,"beta_slow":1.0,"factor":32.0,"original_max_position_embeddings":4096,
                            "rope_type":"yarn","truncate":false},
            "rope_theta":150000,"router_aux_loss_coef":0.9,"sliding_window":128,"swiglu_limit":7.0,
            "tie_word_embeddings":false,"transformers_version":"4.55.0.dev0","use_cache":true,"vocab_size":201088})");
    for (std::size_t layer = 0; layer < 24; ++layer)
        config["layer_types"].push_back(layer % 2 == 0 ? "sliding_attention" : "full_attention");
    config.update(changes);
    return config.dump();
}

ModelConfig parse(const std::string& json) {
    return parse_hf_config(json, "config.json").model;
}
std::string message(const std::string& json) {
    return error_text([&] { static_cast<void>(parse(json)); });
}

TEST(ExpertConfig, IsThatOfPublishedModels) {
    const ModelConfig qwen = parse(qwen3_moe_config());
    EXPECT_EQ(qwen.family, "qwen3moe");
    ASSERT_EQ(qwen.n_layers(), 48);
    for (const std::int64_t layer : {0, 47}) {
        EXPECT_EQ(qwen.layers[layer].feed_forward.d_ff, 0);
        EXPECT_EQ(qwen.experts(layer), (ExpertsConfig{.n_experts = 128, .n_chosen = 8, .d_ff = 768}));
    }
    const ModelConfig mixtral = parse(mixtral_config());
    EXPECT_EQ(mixtral.experts(31), (ExpertsConfig{.n_experts = 8, .n_chosen = 2, .d_ff = 14336}));
    EXPECT_EQ(mixtral.attention(0).head_dim, 128);
    const ModelConfig glm = parse(glm_config());
    EXPECT_EQ(glm.family, "glm4moe");
    EXPECT_TRUE(glm.experts(0).empty());
    EXPECT_EQ(glm.layers[0].feed_forward.d_ff, 10944);
    EXPECT_EQ(glm.layers[45].feed_forward.d_ff, 1408);
    EXPECT_EQ(glm.experts(1), (ExpertsConfig{.n_experts = 128,
                                             .n_chosen = 8,
                                             .d_ff = 1408,
                                             .weighting = {.score = ExpertScore::Sigmoid, .sum_offset = 1e-20F}}));
    EXPECT_EQ(glm.ropes[0].n_rotated, 64);
    EXPECT_EQ(glm.max_d_ff(), 10944);
    EXPECT_EQ(qwen.max_d_ff(), 768);
}

TEST(GptOssConfig, IsThatOfThePublishedModel) {
    const ModelConfig config = parse(gpt_oss_config());
    EXPECT_EQ(config.family, "gpt-oss");
    ASSERT_EQ(config.n_layers(), 24);
    for (std::int64_t layer = 0; layer < 24; ++layer) {
        EXPECT_EQ(config.window(layer), layer % 2 == 0 ? 128 : 0);
        EXPECT_EQ(config.experts(layer), (ExpertsConfig{.n_experts = 32, .n_chosen = 4, .d_ff = 2880}));
        EXPECT_EQ(config.layers[layer].feed_forward.d_ff, 0);
        EXPECT_EQ(config.layers[layer].feed_forward.activation, GatedActivation::ClampedSilu);
        EXPECT_EQ(config.layers[layer].feed_forward.activation_limit, 7.0F);
    }
    EXPECT_EQ(config.attention(0).scale(), 0.125F);
    // From transformers 5.24, of this configuration.
    const RopeFrequencies rope = rope_frequencies(config, 131072).front();
    EXPECT_FLOAT_EQ(rope.magnitude, 1.3465735903F);
    EXPECT_DOUBLE_EQ(rope.inverse_frequency[8], std::pow(150000.0, -16.0 / 64));  // below 8.09, the lower bound
    EXPECT_FLOAT_EQ(static_cast<float>(rope.inverse_frequency[9]), 0.031705696F);
    EXPECT_FLOAT_EQ(static_cast<float>(rope.inverse_frequency[17]), 0.00012931869F);
    EXPECT_DOUBLE_EQ(rope.inverse_frequency[18], std::pow(150000.0, -36.0 / 64) / 32);  // above 17.40, the upper bound
    // Without these fields, the published values.
    nlohmann::json less = nlohmann::json::parse(gpt_oss_config());
    for (const char* key : {"layer_types", "rope_scaling", "swiglu_limit", "attention_bias", "num_experts_per_tok",
                            "sliding_window", "head_dim", "quantization_config"})
        less.erase(key);
    const ModelConfig same = parse(less.dump());
    EXPECT_EQ(same.window(0), 128);
    EXPECT_EQ(same.window(1), 0);
    EXPECT_EQ(rope_frequencies(same, 131072).front().inverse_frequency, rope.inverse_frequency);
    EXPECT_EQ(same.experts(3), config.experts(3));
    EXPECT_EQ(same.layers[3].feed_forward, config.layers[3].feed_forward);
}

TEST(OlmoeConfig, IsThatOfThePublishedModel) {
    // Published config.json of OLMoE-1B-7B-0924.
    nlohmann::json json = nlohmann::json::parse(
        R"({"architectures":["OlmoeForCausalLM"],"attention_bias":false,"attention_dropout":0.0,"clip_qkv":null,
            "eos_token_id":50279,"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,
            "intermediate_size":1024,"max_position_embeddings":4096,"model_type":"olmoe","norm_topk_prob":false,
            "num_attention_heads":16,"num_experts":64,"num_experts_per_tok":8,"num_hidden_layers":16,
            "num_key_value_heads":16,"output_router_logits":false,"pad_token_id":1,"rms_norm_eps":1e-05,
            "rope_scaling":null,"rope_theta":10000.0,"router_aux_loss_coef":0.01,"tie_word_embeddings":false,
            "torch_dtype":"bfloat16","transformers_version":"4.43.0.dev0","use_cache":true,"vocab_size":50304})");
    const ModelConfig config = parse(json.dump());
    EXPECT_EQ(config.family, "olmoe");
    ASSERT_EQ(config.n_layers(), 16);
    EXPECT_TRUE(config.attention(15).norms_projections);
    EXPECT_EQ(config.attention(15).head_dim, 128);
    EXPECT_EQ(config.experts(15).weighting, (ExpertWeighting{.normalized = false}));
    EXPECT_EQ(config.experts(15).d_ff, 1024);
    EXPECT_EQ(config.layers[15].feed_forward.d_ff, 0);
    json["clip_qkv"] = 8.0;
    EXPECT_EQ(message(json.dump()), "config.json: clip_qkv = 8 is not served");
}

TEST(GptOssConfig, WhatIsNotServedIsRefusedInALine) {
    EXPECT_EQ(message(gpt_oss_config({{"swiglu_alpha", 1.5}})),
              "config.json: swiglu_alpha = 1.5 is not served (served: 1.702)");
    EXPECT_EQ(message(gpt_oss_config({{"swiglu_limit", 0.0}})),
              "config.json: the limit of activations is 0; 0.001 to 1000000 can be served");
    EXPECT_EQ(message(gpt_oss_config({{"num_experts_per_tok", 33}})),
              "config.json: 33 experts are chosen for each token; 1 to 32 can be, the layer's number of experts");
    EXPECT_EQ(message(gpt_oss_config({{"num_local_experts", 0}})),
              "config.json: field num_local_experts is 0; a mixture has experts");
    EXPECT_EQ(message(gpt_oss_config({{"sliding_window", 0}})), "config.json: field sliding_window is 0");
    EXPECT_THAT(message(gpt_oss_config({{"layer_types", {"full_attention"}}})),
                HasSubstr("field layer_types is not a list of 24 layers"));
    EXPECT_THAT(message(gpt_oss_config({{"quantization_config", {{"quant_method", "fp8"}}}})),
                HasSubstr("weights quantised by \"fp8\" are not served"));
    EXPECT_THAT(message(qwen3_moe_config({{"quantization_config", {{"quant_method", "mxfp4"}}}})),
                HasSubstr("weights quantised by \"mxfp4\" are not served"));
}

TEST(ExpertConfig, FollowsTheFieldsOfLayersAndWeights) {
    const ModelConfig config = parse(qwen3_moe_config(
        {{"num_hidden_layers", 6}, {"decoder_sparse_step", 2}, {"mlp_only_layers", {3}}, {"norm_topk_prob", false}}));
    std::vector<bool> mixes;
    for (std::int64_t i = 0; i < 6; ++i) mixes.push_back(!config.experts(i).empty());
    EXPECT_THAT(mixes, ElementsAre(false, true, false, false, false, true));
    EXPECT_EQ(config.layers[0].feed_forward.d_ff, 6144);
    EXPECT_FALSE(config.experts(1).weighting.normalized);
    EXPECT_FALSE(parse(glm_config({{"norm_topk_prob", false}})).experts(1).weighting.normalized);
    EXPECT_EQ(parse(glm_config({{"routed_scaling_factor", 2.5}})).experts(1).weighting.scale, 2.5F);
    EXPECT_EQ(parse(glm_config({{"n_shared_experts", 2}})).layers[1].feed_forward.d_ff, 2816);
    // transformers 5 writes the count by another name.
    nlohmann::json renamed = nlohmann::json::parse(qwen3_moe_config());
    renamed.erase("num_experts");
    renamed["num_local_experts"] = 16;
    EXPECT_EQ(parse(renamed.dump()).experts(0).n_experts, 16);
}

TEST(ExpertConfig, RefusesAbsurdNumbersInALine) {
    EXPECT_EQ(message(qwen3_moe_config({{"num_experts", 0}})),
              "config.json: field num_experts is 0; a mixture has experts");
    EXPECT_EQ(message(mixtral_config({{"num_local_experts", 0}})),
              "config.json: field num_local_experts is 0; a mixture has experts");
    EXPECT_EQ(message(glm_config({{"n_routed_experts", -1}})),
              "config.json: field n_routed_experts is -1; a mixture has experts");
    EXPECT_EQ(message(qwen3_moe_config({{"num_experts_per_tok", 129}})),
              "config.json: 129 experts are chosen for each token; 1 to 128 can be, the layer's number of experts");
    EXPECT_EQ(message(qwen3_moe_config({{"num_experts_per_tok", 0}})),
              "config.json: 0 experts are chosen for each token; 1 to 128 can be, the layer's number of experts");
    EXPECT_EQ(message(qwen3_moe_config({{"num_experts", 1LL << 40}})),
              "config.json: number of experts is 1099511627776; 1 to 4096 can be served");
    EXPECT_EQ(message(qwen3_moe_config({{"moe_intermediate_size", 0}})),
              "config.json: width of an expert is 0; 1 to 4194304 can be served");
    EXPECT_THAT(message(mixtral_config({{"num_local_experts", 4096},
                                        {"intermediate_size", 1 << 22},
                                        {"hidden_size", 1 << 20},
                                        {"head_dim", 128}})),
                HasSubstr("number of weights is"));
    EXPECT_EQ(message(qwen3_moe_config({{"decoder_sparse_step", 0}})), "config.json: field decoder_sparse_step is 0");
    EXPECT_EQ(message(qwen3_moe_config({{"decoder_sparse_step", 100}})),
              "config.json: field mlp_only_layers leaves no layer with experts");
    EXPECT_EQ(message(glm_config({{"first_k_dense_replace", 47}})), "config.json: 47 of 46 layers are dense");
    EXPECT_EQ(message(glm_config({{"n_shared_experts", 0}})), "config.json: 0 shared experts; 1 to 64 are served");
    EXPECT_THAT(message(glm_config({{"routed_scaling_factor", 0}})),
                HasSubstr("the scale of the experts' weights is 0"));
}

TEST(ExpertConfig, WhatIsNotServedIsRefusedByName) {
    EXPECT_THAT(message(glm_config({{"use_qk_norm", true}})), HasSubstr("use_qk_norm (norms of heads"));
    EXPECT_THAT(message(glm_config({{"n_group", 8}})), HasSubstr("chosen by groups (n_group) are not served"));
    for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
        nlohmann::json dense = nlohmann::json::parse(mixtral_config({{"architectures", {"LlamaForCausalLM"}}}));
        dense.erase("num_local_experts");
        dense[key] = 8;
        EXPECT_EQ(message(dense.dump()), "config.json: a mixture of 8 experts, which is not served");
    }
    for (const char* name : {"DeepseekV3ForCausalLM", "Cohere2ForCausalLM"})
        EXPECT_THAT(message(mixtral_config({{"architectures", {name}}})),
                    HasSubstr(fmt::format("architecture \"{}\" is not served", name)));
}

// The Hugging Face directory of a golden model whose tensors are renamed.
std::string weights_message(const GoldenModel& golden, const std::function<std::string(const std::string&)>& name) {
    const TempFolder folder;
    write_hugging_face(golden, folder.path(), name);
    return error_text([&] { static_cast<void>(ModelFiles::open(folder.path())->weights()); });
}

TEST(ExpertTensors, MissingAndWrongOnesAreNamed) {
    const auto moved = [](const char* from, const char* to) {
        return [from, to](const std::string& name) { return name == from ? std::string(to) : name; };
    };
    const GoldenModel qwen = load_golden_model("qwen3_moe");
    EXPECT_THAT(weights_message(qwen, moved("model.layers.1.mlp.experts.5.up_proj.weight", "other")),
                HasSubstr("tensor model.layers.1.mlp.experts.5.up_proj.weight [24, 40] is missing"));
    EXPECT_THAT(weights_message(qwen, moved("model.layers.2.mlp.gate.weight", "other")),
                HasSubstr("tensor model.layers.2.mlp.gate.weight [8, 40] is missing"));
    GoldenModel changed = qwen;
    for (GoldenTensor& tensor : changed.tensors)
        if (tensor.name == "model.layers.0.mlp.experts.7.down_proj.weight") tensor.shape = {40, 23};
    EXPECT_THAT(weights_message(changed, nullptr),
                HasSubstr("experts.7.down_proj.weight has shape [40, 23], the configuration asks for [40, 24]"));
    changed = qwen;
    changed.tensors.push_back({"model.layers.0.mlp.experts.8.gate_proj.weight", {24, 40}});
    EXPECT_THAT(
        weights_message(changed, nullptr),
        HasSubstr("experts.8.gate_proj.weight is there, but the configuration says that a layer has 8 experts"));
    changed = qwen;
    changed.tensors.push_back({"model.layers.0.mlp.experts.0.gate_proj.bias", {24}});
    EXPECT_THAT(weights_message(changed, nullptr),
                HasSubstr("experts.0.gate_proj.bias: a model with this part is not"));
    changed = load_golden_model("qwen3_moe_dense_layer");
    changed.tensors.push_back({"model.layers.1.mlp.gate.weight", {11, 40}});
    EXPECT_THAT(
        weights_message(changed, nullptr),
        HasSubstr("layers.1.mlp.gate.weight is there, but the configuration says that the layer has no experts"));
    EXPECT_THAT(weights_message(load_golden_model("glm4_moe"),
                                moved("model.layers.1.mlp.gate.e_score_correction_bias", "other")),
                HasSubstr("tensor model.layers.1.mlp.gate.e_score_correction_bias [16] is missing"));
    EXPECT_THAT(weights_message(load_golden_model("glm4_moe"),
                                moved("model.layers.2.mlp.shared_experts.up_proj.weight", "other")),
                HasSubstr("tensor model.layers.2.mlp.shared_experts.up_proj.weight [24, 40] is missing"));
}

// A golden model of gpt-oss in which one tensor has another shape; none: without it.
std::string reshaped_message(const char* model, const std::string& name, const std::vector<std::int64_t>& shape) {
    GoldenModel golden = load_golden_model(model);
    EXPECT_EQ(std::erase_if(golden.tensors, [&](const GoldenTensor& tensor) { return tensor.name == name; }), 1U);
    if (!shape.empty()) golden.tensors.push_back({name, shape});
    return weights_message(golden, nullptr);
}

TEST(GptOssTensors, MissingAndWrongOnesAreNamed) {
    const std::string layer = "model.layers.1.";
    EXPECT_THAT(reshaped_message("gpt_oss", layer + "self_attn.sinks", {}),
                HasSubstr("tensor model.layers.1.self_attn.sinks [6] is missing"));
    EXPECT_THAT(reshaped_message("gpt_oss", layer + "self_attn.sinks", {7}),
                HasSubstr("sinks has shape [7], the configuration asks for [6]"));
    EXPECT_THAT(reshaped_message("gpt_oss", layer + "self_attn.o_proj.bias", {}),
                HasSubstr("o_proj.bias [40] is missing"));
    EXPECT_THAT(reshaped_message("gpt_oss", layer + "self_attn.q_proj.bias", {71}),
                HasSubstr("q_proj.bias has shape [71], the configuration asks for [72]"));
    EXPECT_THAT(reshaped_message("gpt_oss", layer + "mlp.router.bias", {}),
                HasSubstr("mlp.router.bias [8] is missing"));
    EXPECT_THAT(reshaped_message("gpt_oss", layer + "mlp.router.weight", {9, 40}),
                HasSubstr("mlp.router.weight has shape [9, 40], the configuration asks for [8, 40]"));
    const std::string experts = layer + "mlp.experts.";
    EXPECT_THAT(reshaped_message("gpt_oss", experts + "gate_up_proj", {}),
                HasSubstr("gate_up_proj [8, 40, 48] is missing"));
    EXPECT_THAT(reshaped_message("gpt_oss", experts + "gate_up_proj", {8, 48, 40}),
                HasSubstr("gate_up_proj has shape [8, 48, 40], the configuration asks for [8, 40, 48]"));
    EXPECT_THAT(reshaped_message("gpt_oss", experts + "down_proj", {8, 23, 40}),
                HasSubstr("down_proj has shape [8, 23, 40], the configuration asks for [8, 24, 40]"));
    EXPECT_THAT(reshaped_message("gpt_oss", experts + "gate_up_proj_bias", {8, 47}),
                HasSubstr("gate_up_proj_bias has shape [8, 47], the configuration asks for [8, 48]"));
    EXPECT_THAT(reshaped_message("gpt_oss", experts + "down_proj_bias", {7, 40}),
                HasSubstr("down_proj_bias has shape [7, 40], the configuration asks for [8, 40]"));
    EXPECT_THAT(reshaped_message("gpt_oss_mxfp4", experts + "gate_up_proj_scales", {}),
                HasSubstr("gate_up_proj_scales [8, 192, 2] is missing"));
    EXPECT_THAT(
        reshaped_message("gpt_oss_mxfp4", experts + "gate_up_proj_scales", {8, 192, 3}),
        HasSubstr("gate_up_proj_scales has shape [8, 192, 3] of U8, the configuration asks for [8, 192, 2] of U8"));
    EXPECT_THAT(reshaped_message("gpt_oss_mxfp4", experts + "down_proj_blocks", {}),
                HasSubstr("down_proj_blocks [8, 64, 3, 16] is missing"));
    EXPECT_THAT(reshaped_message("gpt_oss_mxfp4", experts + "down_proj_blocks", {8, 64, 3, 17}),
                HasSubstr("down_proj_blocks has shape [8, 64, 3, 17] of U8"));
    // Scales in floats.
    GoldenModel golden = load_golden_model("gpt_oss_mxfp4");
    golden.tensors.push_back({"floats", {8, 64, 3}});
    const std::string scales = experts + "down_proj_scales";
    EXPECT_THAT(weights_message(golden,
                                [&](const std::string& name) {
                                    return name == "floats" ? scales : name == scales ? std::string("other") : name;
                                }),
                HasSubstr("down_proj_scales has shape [8, 64, 3] of F32, the configuration asks for [8, 64, 3] of U8"));
    // Rows of 40 are no whole blocks.
    golden = load_golden_model("gpt_oss");
    golden.tensors.push_back({"model.layers.0.mlp.experts.gate_up_proj_blocks", {8, 48, 1, 16}});
    EXPECT_THAT(weights_message(golden, nullptr), HasSubstr("is in blocks of 32 elements, and its rows have 40"));
    // An expert more than the configuration says.
    golden = load_golden_model("gpt_oss");
    for (GoldenTensor& tensor : golden.tensors)
        if (tensor.name == experts + "gate_up_proj") tensor.shape[0] = 9;
    EXPECT_THAT(weights_message(golden, nullptr), HasSubstr("gate_up_proj has shape [9, 40, 48]"));
}

std::string gguf_message(const char* name, const std::function<void(GgufWriter&)>& change) {
    GgufWriter file = golden_gguf(load_golden_model(name));
    change(file);
    const TempFolder folder;
    const auto path = folder.path() / "model.gguf";
    const std::string bytes = file.bytes();
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return error_text([&] { static_cast<void>(ModelFiles::open(path)->weights()); });
}

TEST(ExpertKeys, HostileCountsAndShapesAreRefusedInALine) {
    const auto with_key = [](const char* name, const char* key, std::uint32_t value) {
        return gguf_message(name, [&](GgufWriter& file) { file.set(key, value); });
    };
    EXPECT_EQ(gguf_message("qwen3_moe", [](GgufWriter&) {}), "nothing thrown");
    EXPECT_EQ(gguf_message("gpt_oss_yarn", [](GgufWriter&) {}), "nothing thrown");
    EXPECT_THAT(gguf_message("gpt_oss_yarn", [](GgufWriter& file) { file.set("general.architecture", "gptoss"); }),
                HasSubstr("gpt-oss in Ollama's own layout (architecture \"gptoss\") is not served; use a GGUF file of "
                          "llama.cpp's converter (architecture \"gpt-oss\")"));
    EXPECT_EQ(with_key("gpt_oss_yarn", "gpt-oss.expert_gating_func", 3), "nothing thrown");
    EXPECT_THAT(with_key("gpt_oss_yarn", "gpt-oss.expert_gating_func", 2),
                HasSubstr("gpt-oss.expert_gating_func = 2 is not served for this family"));
    EXPECT_THAT(with_key("gpt_oss_yarn", "gpt-oss.expert_used_count", 9),
                HasSubstr("9 experts are chosen for each token; 1 to 8 can be"));
    EXPECT_THAT(with_key("gpt_oss_yarn", "gpt-oss.attention.sliding_window", 0),
                HasSubstr("gpt-oss.attention.sliding_window is 0"));
    EXPECT_THAT(gguf_message("gpt_oss_yarn", [](GgufWriter& file) { file.erase("gpt-oss.attention.sliding_window"); }),
                HasSubstr("metadata gpt-oss.attention.sliding_window is missing"));
    for (const char* tensor : {"attn_sinks.weight [6]", "attn_k.bias [12]", "attn_output.bias [40]",
                               "ffn_gate_inp.bias [8]", "ffn_gate_exps.bias [8, 24]", "ffn_down_exps.bias [8, 40]"}) {
        const std::string name(tensor, std::string_view(tensor).find(' '));
        EXPECT_THAT(
            gguf_message("gpt_oss_yarn", [&](GgufWriter& file) { file.erase_tensor(fmt::format("blk.1.{}", name)); }),
            HasSubstr(fmt::format("tensor blk.1.{} is missing", tensor)));
        EXPECT_THAT(
            gguf_message("gpt_oss_yarn", [&](GgufWriter& file) { file.floats(fmt::format("blk.1.{}", name), {5}); }),
            HasSubstr(fmt::format("tensor blk.1.{} has shape [5]", name)));
    }
    EXPECT_THAT(with_key("qwen3_moe", "qwen3moe.expert_count", 0),
                HasSubstr("expert_count = 0; a mixture has experts"));
    EXPECT_THAT(with_key("qwen3_moe", "qwen3moe.expert_used_count", 9),
                HasSubstr("9 experts are chosen for each token; 1 to 8 can be"));
    EXPECT_THAT(with_key("qwen3_moe", "qwen3moe.expert_used_count", 0),
                HasSubstr("0 experts are chosen for each token; 1 to 8 can be"));
    EXPECT_THAT(with_key("qwen3_moe", "qwen3moe.expert_count", 0xffffffff),
                HasSubstr("number of experts is 4294967295; 1 to 4096 can be served"));
    EXPECT_THAT(with_key("qwen3_moe", "qwen3moe.expert_count", 7),
                HasSubstr("has shape [8, 40], the configuration asks for [7, 40]"));
    EXPECT_THAT(with_key("qwen3_moe", "qwen3moe.expert_feed_forward_length", 25),
                HasSubstr("ffn_gate_exps.weight has shape [8, 24, 40], the configuration asks for [8, 25, 40]"));
    EXPECT_THAT(gguf_message("qwen3_moe", [](GgufWriter& file) { file.erase("qwen3moe.expert_used_count"); }),
                HasSubstr("metadata qwen3moe.expert_used_count is missing"));
    EXPECT_THAT(gguf_message("qwen3_moe", [](GgufWriter& file) { file.erase_tensor("blk.1.ffn_up_exps.weight"); }),
                HasSubstr("tensor blk.1.ffn_up_exps.weight [8, 24, 40] is missing"));
    EXPECT_THAT(gguf_message("qwen3_moe", [](GgufWriter& file) { file.erase_tensor("blk.2.ffn_gate_inp.weight"); }),
                HasSubstr("tensor blk.2.ffn_gate_inp.weight [8, 40] is missing"));
    EXPECT_THAT(gguf_message("qwen3_moe",
                             [](GgufWriter& file) {
                                 file.floats("blk.0.ffn_down_exps.bias", {8, 40});
                             }),
                HasSubstr("blk.0.ffn_down_exps.bias: a model with this part is not served"));
    for (const char* foreign : {"exp_probs_b.bias", "ffn_up_shexp.weight", "ffn_down_exps.scale"})
        EXPECT_THAT(gguf_message("qwen3_moe",
                                 [&](GgufWriter& file) {
                                     file.floats(std::string("blk.0.") + foreign, {8, 40});
                                 }),
                    HasSubstr(std::string("blk.0.") + foreign + ": a model with this part is not served"));
    EXPECT_THAT(gguf_message("qwen3_moe", [](GgufWriter& file) { file.set("qwen3moe.expert_group_count", 4U); }),
                HasSubstr("chosen by groups (qwen3moe.expert_group_count = 4) are not served"));
    // A llama with a router, which says that it is dense.
    EXPECT_THAT(
        gguf_message("llama_mha",
                     [](GgufWriter& file) {
                         file.floats("blk.0.ffn_gate_inp.weight", {8, 32});
                     }),
        HasSubstr("blk.0.ffn_gate_inp.weight is there, but the configuration says that the layer has no experts"));
    EXPECT_THAT(with_key("llama_mha", "llama.expert_count", 4), HasSubstr("llama.expert_used_count is missing"));
    EXPECT_THAT(with_key("qwen3", "qwen3.expert_count", 8), HasSubstr("a mixture of 8 experts, which is not served"));
    EXPECT_THAT(with_key("qwen3_moe", "qwen3moe.expert_gating_func", 2),
                HasSubstr("expert_gating_func = 2 is not served"));
    EXPECT_THAT(with_key("glm4_moe", "glm4moe.expert_gating_func", 1),
                HasSubstr("expert_gating_func = 1 is not served"));
    EXPECT_THAT(with_key("glm4_moe", "glm4moe.leading_dense_block_count", 4), HasSubstr("4 of 3 layers are dense"));
    EXPECT_THAT(with_key("glm4_moe", "glm4moe.nextn_predict_layers", 3),
                HasSubstr("glm4moe.nextn_predict_layers = 3 of 3 layers"));
}

// The file of GLM counts the layer that proposes tokens among its layers; its tensors are not used.
TEST(ExpertKeys, LayersThatProposeTokensAreLeftOut) {
    GgufWriter file = golden_gguf(load_golden_model("glm4_moe"));
    file.set("glm4moe.block_count", 4U).set("glm4moe.nextn_predict_layers", 1U);
    file.floats("blk.3.nextn.eh_proj.weight", {40, 80});
    const TempFolder folder;
    const auto path = folder.path() / "model.gguf";
    const std::string bytes = file.bytes();
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    const auto files = ModelFiles::open(path);
    EXPECT_EQ(files->config().n_layers(), 3);
    EXPECT_EQ(files->weights().layers.size(), 3U);
    EXPECT_EQ(describe_ignored_tensors(*files), "blk.3 (1 tensor)");
}

}  // namespace
}  // namespace slipstream
