// Files of mixtures of experts: what configurations mean, what is refused by name, and hostile counts and shapes.
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
    for (const char* name : {"GptOssForCausalLM", "OlmoeForCausalLM"})
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
