// Fields of published config.json files and keys of published GGUF files: each is used, or refused, or on a list of
// those that mean nothing here, with the reason. A field counts as used if another value of it gives another
// configuration, or an error.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/formats/hf_config.h"
#include "runtime/formats/model_files.h"
#include "tests/support/error_text.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

// Field -> why it means nothing here.
using Ignored = std::map<std::string, std::string>;

const Ignored kNotOfTheArithmetic{{"attention_dropout", "training"},
                                  {"initializer_range", "training"},
                                  {"use_cache", "of transformers' own loop"},
                                  {"transformers_version", "who wrote the file"},
                                  {"pad_token_id", "batches"},
                                  {"model_type", "architectures has the family"}};
const Ignored kVision{{"image_token_index", "vision"},    {"multimodal_projector_bias", "vision"},
                      {"projector_hidden_act", "vision"}, {"spatial_merge_size", "vision"},
                      {"vision_config", "vision"},        {"vision_feature_layer", "vision"},
                      {"out_hidden_size", "vision"},      {"projector_hidden_size", "vision"},
                      {"image_token_id", "vision"},       {"video_token_id", "vision"},
                      {"vision_end_token_id", "vision"},  {"vision_start_token_id", "vision"},
                      {"language_model_only", "vision"}};

Ignored join(std::initializer_list<Ignored> lists) {
    Ignored all;
    for (const Ignored& list : lists) all.insert(list.begin(), list.end());
    return all;
}

std::string describe(const ModelConfig& config) {
    std::string text = fmt::format(
        "{} {} d {} vocab {} context {} eps {} post {} offset {} {} embedding {} residual {} "
        "logits {} cap {} layout {} tied {} kv {}",
        config.family, config.name, config.d_model, config.vocab, config.context_tokens, config.rms_eps,
        config.post_norm_eps, config.norm_offset, config.offsets_layer_norms_only, config.embedding_scale,
        config.residual_scale, config.logit_scale, config.logit_softcap, static_cast<int>(config.rope_layout),
        config.tied_embeddings, dtype_name(config.kv_dtype));
    for (const RopeConfig& rope : config.ropes) {
        const RopeScaling& s = rope.scaling;
        text += fmt::format("; rope {} {} {} {} {} {} {} {} {} {} {} {} {} {}", rope.theta, rope.n_rotated,
                            rope.query_growth, rope.query_growth_period, static_cast<int>(s.kind), s.factor,
                            s.original_context, s.low_freq_factor, s.beta_fast, s.beta_slow,
                            s.attention_factor.value_or(-1.0), s.mscale, s.mscale_all_dim, s.frequency_divisors.size());
        for (const auto* factors : {&s.short_factors, &s.long_factors})
            for (const double factor : *factors) text += fmt::format(" {}", factor);
    }
    for (const LayerConfig& layer : config.layers) {
        if (layer.has_attention()) {
            const AttentionConfig& a = layer.attention();
            text += fmt::format("; {} {} {} window {} rope {} scale {} cap {} gate {} {}", a.n_q_heads, a.n_kv_heads,
                                a.head_dim, a.window, a.rope, a.scale(), a.softcap, a.output_gate, a.gate_in_queries);
        } else {
            const DeltaNetShape& s = layer.delta_net().shape;
            text += fmt::format("; delta net {} {} {} {} {} {} {} {} {}", s.n_key_heads, s.n_value_heads, s.key_dim,
                                s.value_dim, s.conv_width, s.tiled, layer.delta_net().log_decay,
                                layer.delta_net().gate_in_inputs, layer.delta_net().decay_in_beta);
        }
        text += fmt::format(" ff {} {}", layer.feed_forward.d_ff, static_cast<int>(layer.feed_forward.activation));
        const ExpertsConfig& e = layer.feed_forward.experts;
        text += fmt::format(" experts {} {} {} {} {}", e.n_experts, e.n_chosen, e.d_ff, e.weighting.normalized,
                            e.weighting.scale);
    }
    return text;
}

std::string describe(const Json& json) {
    const HfConfig config = parse_hf_config(json.dump(), "config.json");
    std::string text = describe(config.model);
    text += fmt::format("; nested {} biases {} {} bos {}", config.is_nested, static_cast<int>(config.biases.qkv_bias),
                        static_cast<int>(config.biases.out_bias), config.bos_id.value_or(-1));
    for (const TensorRole role : {TensorRole::QNorm, TensorRole::KNorm, TensorRole::EmbeddingNorm})
        text += fmt::format(" {}", config.biases.constants[role].value_or(0.0F));
    for (const TokenId id : config.end_tokens) text += fmt::format(" {}", id);
    return text;
}

Json other_value(const Json& value) {
    if (value.is_boolean()) return !value.get<bool>();
    if (value.is_number_integer()) return 3 * value.get<std::int64_t>() + 2;
    if (value.is_number()) return 2.0 * value.get<double>() + 0.125;
    if (value.is_string()) return "other";
    if (value.is_null()) return 5;
    if (value.is_array()) {
        Json changed = value;
        changed.front() = value.front() == 1 ? Json(0) : other_value(value.front());
        return changed;
    }
    return Json::object();
}

void expect_all_fields_known(const Json& whole, const Json::json_pointer& at, const Ignored& ignored) {
    const std::string as_published = describe(whole);
    for (const auto& [key, value] : whole.at(at).items()) {
        Json changed = whole;
        changed[at / key] = other_value(value);
        std::string found;
        try {
            found = describe(changed);
        } catch (const Error& error) {
            found = error.what();
            EXPECT_EQ(found.find('\n'), std::string::npos) << found;
        }
        EXPECT_EQ(found == as_published, ignored.contains(key))
            << (at / key).to_string() << (ignored.contains(key) ? " is said to be ignored" : " has no effect");
        if (value.is_object() && !ignored.contains(key)) expect_all_fields_known(whole, at / key, ignored);
    }
}

Json mistral_small() {
    return Json::parse(R"({"architectures":["Mistral3ForConditionalGeneration"],"image_token_index":10,
        "model_type":"mistral3","multimodal_projector_bias":false,"projector_hidden_act":"gelu","spatial_merge_size":2,
        "text_config":{"attention_dropout":0.0,"head_dim":128,"hidden_act":"silu","hidden_size":5120,
            "initializer_range":0.02,"intermediate_size":32768,"max_position_embeddings":131072,"model_type":"mistral",
            "num_attention_heads":32,"num_hidden_layers":40,"num_key_value_heads":8,"rms_norm_eps":1e-05,
            "rope_theta":1000000000.0,"sliding_window":null,"use_cache":true,"vocab_size":131072},
        "torch_dtype":"bfloat16","transformers_version":"4.50.0.dev0",
        "vision_config":{"head_dim":64,"hidden_size":1024,"model_type":"pixtral"},"vision_feature_layer":-1})");
}

Json ministral() {
    return Json::parse(
        R"({"architectures":["Mistral3ForConditionalGeneration"],"dtype":"bfloat16","image_token_index":10,
        "model_type":"mistral3","multimodal_projector_bias":false,"projector_hidden_act":"gelu","spatial_merge_size":2,
        "text_config":{"attention_dropout":0.0,"head_dim":128,"hidden_act":"silu","hidden_size":3072,
            "initializer_range":0.02,"intermediate_size":9216,"max_position_embeddings":262144,"model_type":"ministral3",
            "num_attention_heads":32,"num_hidden_layers":26,"num_key_value_heads":8,"rms_norm_eps":1e-05,
            "rope_parameters":{"beta_fast":32.0,"beta_slow":1.0,"factor":16.0,"llama_4_scaling_beta":0.1,"mscale":1.0,
                "mscale_all_dim":1.0,"original_max_position_embeddings":16384,"rope_theta":1000000.0,
                "rope_type":"yarn","type":"yarn"},
            "sliding_window":null,"tie_word_embeddings":true,"use_cache":true,"vocab_size":131072},
        "transformers_version":"5.0.0.dev0","vision_config":{"model_type":"pixtral"},"vision_feature_layer":-1})");
}

// Qwen3.6-27B, without its "partial_rotary_factor" beside that of "rope_parameters", which counts.
Json qwen36() {
    Json json = Json::parse(R"({"architectures":["Qwen3_5ForConditionalGeneration"],"image_token_id":248056,
        "language_model_only":false,"model_type":"qwen3_5","text_config":{"attention_bias":false,
            "attention_dropout":0.0,"attn_output_gate":true,"bos_token_id":248044,"dtype":"bfloat16",
            "eos_token_id":248044,"full_attention_interval":4,"head_dim":256,"hidden_act":"silu","hidden_size":5120,
            "initializer_range":0.02,"intermediate_size":17408,"linear_conv_kernel_dim":4,"linear_key_head_dim":128,
            "linear_num_key_heads":16,"linear_num_value_heads":48,"linear_value_head_dim":128,
            "mamba_ssm_dtype":"float32","max_position_embeddings":262144,"model_type":"qwen3_5_text",
            "mtp_num_hidden_layers":1,"mtp_use_dedicated_embeddings":false,"num_attention_heads":24,
            "num_hidden_layers":64,"num_key_value_heads":4,"output_gate_type":"swish","pad_token_id":null,
            "rms_norm_eps":1e-06,"rope_parameters":{"mrope_interleaved":true,"mrope_section":[11,11,10],"partial_rotary_factor":0.25,"rope_theta":10000000,"rope_type":"default"},
            "tie_word_embeddings":false,"use_cache":true,"vocab_size":248320},
        "tie_word_embeddings":false,"transformers_version":"4.57.1","video_token_id":248057,
        "vision_config":{"depth":27,"hidden_size":1152,"model_type":"qwen3_5"},"vision_end_token_id":248054,
        "vision_start_token_id":248053})");
    for (int i = 0; i < 64; ++i)
        json["text_config"]["layer_types"].push_back(i % 4 == 3 ? "full_attention" : "linear_attention");
    return json;
}

// Qwen3.6-35B-A3B.
Json qwen36_moe() {
    Json json = qwen36();
    json["architectures"][0] = "Qwen3_5MoeForConditionalGeneration";
    json["model_type"] = "qwen3_5_moe";
    Json& text = json["text_config"];
    text.erase("intermediate_size");
    text.update(Json::parse(R"({"hidden_size":2048,"linear_num_value_heads":32,"model_type":"qwen3_5_moe_text",
        "moe_intermediate_size":512,"num_attention_heads":16,"num_experts":256,"num_experts_per_tok":8,
        "num_hidden_layers":40,"num_key_value_heads":2,"output_router_logits":false,"router_aux_loss_coef":0.001,
        "shared_expert_intermediate_size":512})"));
    text["layer_types"].erase(text["layer_types"].begin() + 40, text["layer_types"].end());
    return json;
}

// Qwen3-Next-80B-A3B; Qwen3-Coder-Next has the same numbers.
Json qwen3_next() {
    return Json::parse(R"({"architectures":["Qwen3NextForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
        "bos_token_id":151643,"decoder_sparse_step":1,"eos_token_id":151645,"full_attention_interval":4,"head_dim":256,
        "hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,"intermediate_size":5120,
        "linear_conv_kernel_dim":4,"linear_key_head_dim":128,"linear_num_key_heads":16,"linear_num_value_heads":32,
        "linear_value_head_dim":128,"max_position_embeddings":262144,"mlp_only_layers":[],"model_type":"qwen3_next",
        "moe_intermediate_size":512,"norm_topk_prob":true,"num_attention_heads":16,"num_experts":512,
        "num_experts_per_tok":10,"num_hidden_layers":48,"num_key_value_heads":2,"output_router_logits":false,
        "partial_rotary_factor":0.25,"rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":10000000,
        "router_aux_loss_coef":0.001,"shared_expert_intermediate_size":512,"tie_word_embeddings":false,
        "torch_dtype":"bfloat16","transformers_version":"4.57.0.dev0","use_cache":true,"vocab_size":151936})");
}

Json phi4() {
    return Json::parse(R"({"architectures":["Phi3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
        "bos_token_id":100257,"embd_pdrop":0.0,"eos_token_id":100265,"hidden_act":"silu","hidden_size":5120,
        "initializer_range":0.02,"intermediate_size":17920,"max_position_embeddings":16384,"model_type":"phi3",
        "num_attention_heads":40,"num_hidden_layers":40,"num_key_value_heads":10,
        "original_max_position_embeddings":16384,"pad_token_id":100349,"resid_pdrop":0.0,"rms_norm_eps":1e-05,
        "rope_scaling":null,"rope_theta":250000,"sliding_window":null,"tie_word_embeddings":false,
        "torch_dtype":"bfloat16","transformers_version":"4.47.0","use_cache":true,"vocab_size":100352})");
}

Json phi4_mini() {
    Json json = Json::parse(R"({"_name_or_path":"Phi-4-mini-instruct","architectures":["Phi3ForCausalLM"],
        "attention_bias":false,"attention_dropout":0.0,"auto_map":{},"bos_token_id":199999,"embd_pdrop":0.0,
        "eos_token_id":199999,"full_attn_mod":1,"hidden_act":"silu","hidden_size":3072,"initializer_range":0.02,
        "intermediate_size":8192,"interpolate_factor":1,"lm_head_bias":false,"max_position_embeddings":131072,
        "mlp_bias":false,"model_type":"phi3","num_attention_heads":24,"num_hidden_layers":32,"num_key_value_heads":8,
        "original_max_position_embeddings":4096,"pad_token_id":199999,"partial_rotary_factor":0.75,"resid_pdrop":0.0,
        "rms_norm_eps":1e-05,"rope_scaling":{"type":"longrope"},"rope_theta":10000.0,"sliding_window":262144,
        "tie_word_embeddings":true,"torch_dtype":"bfloat16","transformers_version":"4.45.0","use_cache":true,
        "vocab_size":200064})");
    json["rope_scaling"]["short_factor"] = std::vector<double>(48, 1.0);
    json["rope_scaling"]["long_factor"] = std::vector<double>(48, 1.5);
    return json;
}

Json muse() {
    Json json = Json::parse(R"({"architectures":["MuseGlimmerForConditionalGeneration"],"dtype":"bfloat16",
        "image_token_id":200092,"model_type":"muse_glimmer","out_hidden_size":6144,"projector_hidden_act":"gelu",
        "projector_hidden_size":4096,"text_config":{"attention_bias":false,"attention_dropout":0.0,
            "final_logit_softcapping":20.0,"head_dim":128,"hidden_activation":"silu","hidden_size":6656,
            "initializer_range":0.02,"intermediate_size":19968,"max_position_embeddings":131072,
            "model_type":"muse_glimmer_text","num_attention_heads":32,"num_hidden_layers":52,"num_key_value_heads":2,
            "output_multiplier":0.19611613513818404,"pad_token_id":null,"post_norm_eps":1e-08,"qk_scale_factor":3.87,
            "rms_norm_eps":1e-05,"rope_parameters":{"rope_theta":500000.0,"rope_type":"default"},"sliding_window":2048,
            "use_cache":true,"vocab_size":202048},
        "bos_token_id":200000,"eos_token_id":[200001,200008],"tie_word_embeddings":false,"transformers_version":"5.20.0",
        "video_token_id":200091,"vision_config":{"model_type":"muse_glimmer_vision"}})");
    for (int i = 0; i < 52; ++i) {
        json["text_config"]["layer_types"].push_back((51 - i) % 4 == 0 ? "full_attention" : "sliding_attention");
        json["text_config"]["layer_rope_theta"].push_back((51 - i) % 4 == 0 ? 0.0 : 500000.0);
    }
    return json;
}

Json smollm3() {
    Json json = Json::parse(R"({"architectures":["SmolLM3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
        "bos_token_id":128000,"eos_token_id":128012,"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,
        "intermediate_size":11008,"max_position_embeddings":65536,"max_window_layers":28,"mlp_bias":false,
        "model_type":"smollm3","no_rope_layer_interval":4,"num_attention_heads":16,"num_hidden_layers":36,
        "num_key_value_heads":4,"pad_token_id":128004,"pretraining_tp":2,"rms_norm_eps":1e-06,"rope_scaling":null,
        "rope_theta":5000000.0,"sliding_window":null,"torch_dtype":"bfloat16","transformers_version":"4.54.0.dev0",
        "use_cache":false,"use_sliding_window":false,"vocab_size":128256})");
    for (int i = 0; i < 36; ++i) {
        json["no_rope_layers"].push_back((i + 1) % 4 == 0 ? 0 : 1);
        json["layer_types"].push_back("full_attention");
    }
    return json;
}

Json granite() {
    return Json::parse(R"({"architectures":["GraniteForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
        "attention_multiplier":0.0078125,"bos_token_id":0,"embedding_multiplier":12.0,"eos_token_id":0,
        "hidden_act":"silu","hidden_size":4096,"initializer_range":0.02,"intermediate_size":12800,"logits_scaling":16.0,
        "max_position_embeddings":131072,"mlp_bias":false,"model_type":"granite","num_attention_heads":32,
        "num_hidden_layers":40,"num_key_value_heads":8,"pad_token_id":0,"residual_multiplier":0.22,
        "rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":10000000.0,"tie_word_embeddings":true,
        "torch_dtype":"bfloat16","transformers_version":"4.49.0","use_cache":true,"vocab_size":49159})");
}

TEST(PublishedConfig, EveryFieldIsUsedOrRefusedOrKnownToMeanNothing) {
    // The family inside is chosen by its own model_type.
    Ignored nested = join({kNotOfTheArithmetic, kVision});
    expect_all_fields_known(granite(), Json::json_pointer(), kNotOfTheArithmetic);
    expect_all_fields_known(smollm3(), Json::json_pointer(),
                            join({kNotOfTheArithmetic,
                                  {{"no_rope_layer_interval", "no_rope_layers says it"},
                                   {"layer_types", "no window is used"},
                                   {"sliding_window", "no window is used"},
                                   {"use_sliding_window", "there is no window to use"},
                                   {"max_window_layers", "transformers does not read it"},
                                   {"pretraining_tp", "training"}}}));
    const Ignored phi{{"attention_bias", "transformers does not read it for this family"},
                      {"embd_pdrop", "training"},
                      {"resid_pdrop", "training"}};
    expect_all_fields_known(
        phi4(), Json::json_pointer(),
        join({kNotOfTheArithmetic, phi, {{"original_max_position_embeddings", "RoPE is not scaled"}}}));
    expect_all_fields_known(phi4_mini(), Json::json_pointer(),
                            join({kNotOfTheArithmetic,
                                  phi,
                                  {{"auto_map", "code of the model's own"},
                                   {"full_attn_mod", "transformers does not read it"},
                                   {"interpolate_factor", "transformers does not read it"},
                                   {"lm_head_bias", "a tensor of such a bias is refused"}}}));
    const Ignored of_router{{"output_router_logits", "training"}, {"router_aux_loss_coef", "training"}};
    // An empty list cannot be given another value here; FollowsTheFieldsOfLayersAndWeights does.
    Json next = qwen3_next();
    next.erase("mlp_only_layers");
    expect_all_fields_known(
        next, Json::json_pointer(),
        join({kNotOfTheArithmetic, of_router, {{"intermediate_size", "no layer is without experts"}}}));
    for (const Json& json : {mistral_small(), ministral(), muse(), qwen36(), qwen36_moe()}) {
        Ignored outer = nested;
        outer.insert({"text_config", "below"});
        Json whole = json;
        SCOPED_TRACE(whole["text_config"]["model_type"].get<std::string>());
        for (const auto& [key, value] : whole.items()) {
            if (key == "text_config") continue;
            Json changed = whole;
            changed[key] = other_value(value);
            std::string found;
            try {
                found = describe(changed);
            } catch (const Error& error) {
                found = error.what();
            }
            EXPECT_EQ(found == describe(whole), nested.contains(key)) << key;
        }
        Ignored inner = kNotOfTheArithmetic;
        inner.erase("model_type");
        inner.insert({"type", "rope_type says it"});
        inner.insert({"tie_word_embeddings", "that of the whole configuration counts, or the tensors"});
        if (whole["model_type"].get<std::string>().starts_with("qwen3_5"))
            inner = join({inner,
                          of_router,
                          {{"full_attention_interval", "layer_types says it"},
                           {"mamba_ssm_dtype", "states are always floats"},
                           {"mtp_num_hidden_layers", "the tensors of a head say it"},
                           {"mtp_use_dedicated_embeddings", "the tensors of a head say it"},
                           {"mrope_interleaved", "positions of images"},
                           {"mrope_section", "positions of images"}}});
        expect_all_fields_known(whole, Json::json_pointer("/text_config"), inner);
    }
}

TEST(PublishedConfig, SaysWhatTheModelsAre) {
    const auto model = [](const Json& json) { return parse_hf_config(json.dump(), "config.json"); };
    EXPECT_EQ(model(mistral_small()).model.family, "mistral");
    EXPECT_TRUE(model(mistral_small()).is_nested);
    EXPECT_TRUE(model(mistral_small()).is_tied_without_head);
    const ModelConfig three = model(ministral()).model;
    EXPECT_EQ(three.family, "mistral3");
    EXPECT_TRUE(model(ministral()).is_tied_without_head);
    EXPECT_EQ(three.ropes[0].query_factor(16383), 1.0);
    EXPECT_DOUBLE_EQ(three.ropes[0].query_factor(3 * 16384), 1.0 + 0.1 * std::log(4.0));
    const ModelConfig mini = model(phi4_mini()).model;
    EXPECT_EQ(mini.ropes[0].n_rotated, 96);
    EXPECT_EQ(mini.ropes[0].scaling.kind, RopeScalingKind::LongRope);
    const ModelConfig glimmer = model(muse()).model;
    EXPECT_EQ(glimmer.attention(0).window, 2048);
    EXPECT_EQ(glimmer.attention(0).rope, 0U);
    EXPECT_EQ(glimmer.attention(3).window, 0);
    EXPECT_EQ(glimmer.attention(3).rope, kNoRope);
    EXPECT_EQ(glimmer.attention(51).rope, kNoRope);
    const HfConfig qwen = model(qwen36());
    EXPECT_EQ(qwen.model.family, "qwen35");
    EXPECT_TRUE(qwen.is_nested);
    EXPECT_FALSE(qwen.model.tied_embeddings);
    EXPECT_EQ(qwen.model.norm_offset, 1.0F);
    EXPECT_EQ(qwen.model.ropes[0].n_rotated, 64);
    const DeltaNetShape& shape = qwen.model.delta_net(62).shape;
    EXPECT_EQ(shape, qwen.model.delta_net(0).shape);
    EXPECT_EQ(shape.convolved_cols(), 10240);
    EXPECT_EQ((shape.state_floats() + shape.tap_floats()) * 4, 3145728 + 122880);
    EXPECT_FALSE(shape.tiled);
    EXPECT_TRUE(qwen.model.delta_net(0).log_decay);
    EXPECT_TRUE(qwen.model.attention(63).gate_in_queries);
    const ModelConfig mixture = model(qwen36_moe()).model;
    EXPECT_EQ(mixture.family, "qwen35moe");
    EXPECT_EQ(mixture.experts(39), (ExpertsConfig{.n_experts = 256, .n_chosen = 8, .d_ff = 512}));
    EXPECT_EQ(mixture.layers[39].feed_forward.d_ff, 512);
    const ModelConfig coder = model(qwen3_next()).model;
    EXPECT_EQ(coder.family, "qwen3next");
    EXPECT_EQ(coder.experts(0), (ExpertsConfig{.n_experts = 512, .n_chosen = 10, .d_ff = 512}));
    EXPECT_TRUE(coder.delta_net(0).gate_in_inputs && coder.delta_net(0).decay_in_beta);
    EXPECT_TRUE(coder.layers[47].has_attention());
    EXPECT_EQ(coder.ropes[0].n_rotated, 64);
    EXPECT_EQ(model(smollm3()).model.attention(3).rope, kNoRope);
    EXPECT_EQ(model(smollm3()).model.attention(4).rope, 0U);
    EXPECT_EQ(model(granite()).model.attention(0).scale(), 0.0078125F);
    EXPECT_EQ(model(granite()).model.logit_scale, 1.0F / 16.0F);
}

std::string message(Json json, const char* at, const Json& value) {
    json[Json::json_pointer(at)] = value;
    return error_text([&] { static_cast<void>(parse_hf_config(json.dump(), "config.json")); });
}

TEST(PublishedConfig, AbsurdFieldsAreNamed) {
    const Json fp8 = {{"quant_method", "fp8"}, {"activation_scheme", "static"}, {"weight_block_size", nullptr}};
    EXPECT_THAT(
        message(ministral(), "/quantization_config", fp8),
        HasSubstr("weights quantised by \"fp8\" are not served; use a directory of this model in F32, F16 or BF16, "
                  "or a GGUF file of it"));
    EXPECT_THAT(message(ministral(), "/text_config/model_type", "mistral4"),
                HasSubstr("text model \"mistral4\" inside \"Mistral3ForConditionalGeneration\" is not served (served: "
                          "mistral, ministral3)"));
    EXPECT_THAT(message(ministral(), "/text_config/rope_parameters", nullptr), HasSubstr("rope_parameters is missing"));
    EXPECT_THAT(message(ministral(), "/text_config/rope_parameters/llama_4_scaling_beta", -1.0),
                HasSubstr("queries grow by -1"));
    EXPECT_THAT(message(ministral(), "/text_config/rope_parameters/partial_rotary_factor", 0.5),
                HasSubstr("rope turns only 64 of 128 elements"));
    EXPECT_THAT(message(ministral(), "/text_config/rope_parameters/original_max_position_embeddings", 0),
                HasSubstr("without original_max_position_embeddings"));
    EXPECT_THAT(message(muse(), "/text_config/layer_types", Json::array({"full_attention"})),
                HasSubstr("layer_types is not a list of 52 layers"));
    EXPECT_THAT(message(muse(), "/text_config/layer_rope_theta", Json::array({0.0})),
                HasSubstr("layer_rope_theta has 1 numbers for 52 layers"));
    EXPECT_THAT(message(muse(), "/text_config/layer_rope_theta/0", 1e6),
                HasSubstr("layer_rope_theta 1000000 beside a rope_theta of 500000 is not served"));
    EXPECT_THAT(message(muse(), "/text_config/post_norm_eps", 0.0), HasSubstr("post_norm_eps is 0"));
    EXPECT_THAT(message(muse(), "/text_config/output_multiplier", 0.0), HasSubstr("the scale of logits is 0"));
    EXPECT_THAT(message(muse(), "/text_config/qk_scale_factor", 1e9), HasSubstr("the scale of queries is"));
    EXPECT_THAT(message(muse(), "/text_config/final_logit_softcapping", -1.0), HasSubstr("softcap of logits is -1"));
    EXPECT_THAT(message(muse(), "/text_config/sliding_window", 0), HasSubstr("sliding_window is 0"));
    EXPECT_THAT(message(smollm3(), "/no_rope_layers", Json::array({1})),
                HasSubstr("no_rope_layers has 1 numbers for 36 layers"));
    EXPECT_THAT(message(granite(), "/attention_multiplier", 0.0), HasSubstr("the scale of attention scores is 0"));
    EXPECT_THAT(message(granite(), "/logits_scaling", 0.0), HasSubstr("the scale of logits is 0"));
    EXPECT_THAT(message(granite(), "/residual_multiplier", 1e30), HasSubstr("the scale of the residual stream is"));
    EXPECT_THAT(message(phi4_mini(), "/partial_rotary_factor", 1.5), HasSubstr("partial_rotary_factor is 1.5"));
    EXPECT_THAT(message(phi4_mini(), "/partial_rotary_factor", 0.5), HasSubstr("48 rope factors for 32 frequencies"));
}

// A GGUF file of keys alone, with the tensors that the configuration is read from.
struct GgufKeyValues {
    std::string architecture;
    std::map<std::string, double> counts;   // u32
    std::map<std::string, double> numbers;  // f32
    std::string scaling_type{};             // rope.scaling.type; empty: not there
    std::vector<std::uint8_t> pattern{};    // attention.sliding_window_pattern; empty: not there
    std::int64_t n_factors = 0;             // of the tensors rope_factors_long and _short
    std::size_t n_kv_counts = 0;            // length of attention.head_count_kv, if it is an array

    [[nodiscard]] std::string description() const {
        GgufWriter file;
        file.set("general.architecture", architecture.c_str()).set("general.name", "published");
        const auto key = [&](const std::string& name) { return fmt::format("{}.{}", architecture, name); };
        for (const auto& [name, value] : counts) {
            const auto count = static_cast<std::uint32_t>(value);
            if (name == "attention.head_count_kv" && n_kv_counts > 0)
                file.set(key(name), gguf_array(std::vector<GgufBytes>(n_kv_counts, gguf_scalar(count))));
            else
                file.set(key(name), count);
        }
        for (const auto& [name, value] : numbers) file.set(key(name), static_cast<float>(value));
        if (!scaling_type.empty()) file.set(key("rope.scaling.type"), scaling_type.c_str());
        if (!pattern.empty()) {
            std::vector<GgufBytes> flags;
            for (const std::uint8_t flag : pattern) flags.push_back(gguf_scalar(flag));
            file.set(key("attention.sliding_window_pattern"), gguf_array(flags));
        }
        const auto floats = [&](const std::string& name, const std::vector<std::int64_t>& shape, std::size_t n) {
            const std::vector<float> ones(n, 1.0F);
            file.tensor(name, 0, shape, std::string(reinterpret_cast<const char*>(ones.data()), n * sizeof(float)));
        };
        floats("token_embd.weight", {3, 8}, 24);
        if (n_factors > 0)
            for (const char* which : {"long", "short"})
                floats(fmt::format("rope_factors_{}.weight", which), {n_factors}, static_cast<std::size_t>(n_factors));
        const TempFolder folder;
        return describe(ModelFiles::open(folder.write("keys.gguf", file.bytes()))->config());
    }
};

void expect_all_keys_known(const GgufKeyValues& keys, const Ignored& ignored = {}) {
    SCOPED_TRACE(keys.architecture);
    const std::string as_published = keys.description();
    const auto expect_known = [&](const std::string& key, const GgufKeyValues& changed) {
        std::string found;
        try {
            found = changed.description();
        } catch (const Error& error) {
            found = error.what();
            EXPECT_EQ(found.find('\n'), std::string::npos) << found;
        }
        EXPECT_EQ(found == as_published, ignored.contains(key)) << key;
    };
    for (const auto& [key, value] : keys.counts) {
        GgufKeyValues changed = keys;
        changed.counts[key] = 3 * value + 2;
        expect_known(key, changed);
    }
    for (const auto& [key, value] : keys.numbers) {
        GgufKeyValues changed = keys;
        changed.numbers[key] = 2 * value + 0.125;
        expect_known(key, changed);
    }
    if (!keys.scaling_type.empty()) {
        GgufKeyValues changed = keys;
        changed.scaling_type = "other";
        expect_known("rope.scaling.type", changed);
    }
    if (!keys.pattern.empty()) {
        GgufKeyValues changed = keys;
        changed.pattern[0] ^= 1;
        expect_known("attention.sliding_window_pattern", changed);
    }
}

TEST(PublishedGguf, EveryKeyIsUsedOrRefusedOrKnownToMeanNothing) {
    const auto sizes = [](double layers, double d, double ff, double q, double kv, double context) {
        return std::map<std::string, double>{{"block_count", layers},         {"embedding_length", d},
                                             {"feed_forward_length", ff},     {"attention.head_count", q},
                                             {"attention.head_count_kv", kv}, {"context_length", context}};
    };
    const auto with = [](std::map<std::string, double> all, const std::map<std::string, double>& more) {
        all.insert(more.begin(), more.end());
        return all;
    };
    const std::map<std::string, double> heads{
        {"attention.key_length", 128}, {"attention.value_length", 128}, {"rope.dimension_count", 128}};
    const Ignored of_vocabulary{{"vocab_size", "the embedding's rows say it"}};
    const GgufKeyValues mistral3{
        .architecture = "mistral3",
        .counts = with(with(sizes(26, 3072, 9216, 32, 8, 262144), heads),
                       {{"vocab_size", 131072}, {"rope.scaling.original_context_length", 16384}}),
        .numbers = {{"attention.layer_norm_rms_epsilon", 1e-5},
                    {"rope.freq_base", 1e6},
                    {"rope.scaling.factor", 16},
                    {"rope.scaling.yarn_beta_fast", 32},
                    {"rope.scaling.yarn_beta_slow", 1},
                    {"rope.scaling.yarn_log_multiplier", 1},
                    {"attention.temperature_scale", 0.1}},
        .scaling_type = "yarn"};
    expect_all_keys_known(mistral3, of_vocabulary);
    // Mistral Small 3.x of today's converter.
    expect_all_keys_known({.architecture = "mistral3",
                           .counts = with(with(sizes(40, 5120, 32768, 32, 8, 131072), heads), {{"vocab_size", 131072}}),
                           .numbers = {{"attention.layer_norm_rms_epsilon", 1e-5}, {"rope.freq_base", 1e9}}},
                          of_vocabulary);
    // Phi-4-mini. The window is longer than the context.
    expect_all_keys_known(
        {.architecture = "phi3",
         .counts = with(sizes(32, 3072, 8192, 24, 8, 131072), {{"rope.dimension_count", 96},
                                                               {"rope.scaling.original_context_length", 4096},
                                                               {"attention.sliding_window", 262144}}),
         .numbers = {{"attention.layer_norm_rms_epsilon", 1e-5},
                     {"rope.freq_base", 10000},
                     {"rope.scaling.attn_factor", 1.19}},
         .n_factors = 48});
    // Phi-4.
    expect_all_keys_known(
        {.architecture = "phi3",
         .counts = with(sizes(40, 5120, 17920, 40, 10, 16384), {{"rope.dimension_count", 128},
                                                                {"rope.scaling.original_context_length", 16384},
                                                                {"attention.sliding_window", 0}}),
         .numbers = {{"attention.layer_norm_rms_epsilon", 1e-5}, {"rope.freq_base", 250000}}});
    const GgufKeyValues muse_keys{
        .architecture = "muse-glimmer",
        .counts = with(with(sizes(8, 6656, 19968, 32, 2, 131072), heads), {{"attention.sliding_window", 2048}}),
        .numbers = {{"attention.layer_norm_rms_epsilon", 1e-5},
                    {"rope.freq_base", 500000},
                    {"final_logit_softcapping", 20},
                    {"logit_scale", 0.19611614}},
        .pattern = {1, 1, 1, 0, 1, 1, 1, 0}};
    expect_all_keys_known(muse_keys);
    expect_all_keys_known(
        {.architecture = "smollm3",
         .counts = with(sizes(36, 2048, 11008, 16, 4, 65536), {{"vocab_size", 128256}, {"rope.dimension_count", 128}}),
         .numbers = {{"attention.layer_norm_rms_epsilon", 1e-6}, {"rope.freq_base", 5e6}}},
        of_vocabulary);
    expect_all_keys_known(
        {.architecture = "granite",
         .counts = with(sizes(40, 4096, 12800, 32, 8, 131072), {{"vocab_size", 49159}, {"rope.dimension_count", 128}}),
         .numbers = {{"attention.layer_norm_rms_epsilon", 1e-5},
                     {"rope.freq_base", 1e7},
                     {"attention.scale", 0.0078125},
                     {"embedding_scale", 12},
                     {"residual_scale", 0.22},
                     {"logit_scale", 16}}},
        of_vocabulary);
    // Granite 4.0 Micro. Its files name the class of the hybrids, which have recurrent layers and experts beside these
    // layers; llama.cpp's converter then writes the hybrids' keys, too.
    expect_all_keys_known(
        {.architecture = "granite",
         .counts = with(sizes(40, 2560, 8192, 40, 8, 131072), {{"vocab_size", 100352},
                                                               {"rope.dimension_count", 64},
                                                               {"expert_count", 0},
                                                               {"expert_used_count", 0},
                                                               {"expert_shared_feed_forward_length", 8192},
                                                               {"ssm.conv_kernel", 4},
                                                               {"ssm.state_size", 128},
                                                               {"ssm.group_count", 1},
                                                               {"ssm.inner_size", 5120},
                                                               {"ssm.time_step_rank", 80}}),
         .numbers = {{"attention.layer_norm_rms_epsilon", 1e-5},
                     {"rope.freq_base", 1e7},
                     {"attention.scale", 0.015625},
                     {"embedding_scale", 12},
                     {"residual_scale", 0.22},
                     {"logit_scale", 10}},
         .n_kv_counts = 40},
        {{"vocab_size", "the embedding's rows say it"},
         {"expert_used_count", "there are no experts"},
         {"expert_shared_feed_forward_length", "feed_forward_length is the same number"},
         {"ssm.conv_kernel", "there are no recurrent layers"},
         {"ssm.state_size", "there are no recurrent layers"},
         {"ssm.group_count", "there are no recurrent layers"},
         {"ssm.inner_size", "there are no recurrent layers"},
         {"ssm.time_step_rank", "there are no recurrent layers"}});
    // Qwen3.5-27B with a layer that proposes tokens.
    expect_all_keys_known({.architecture = "qwen35",
                           .counts = with(sizes(65, 5120, 17408, 24, 4, 262144), {{"attention.key_length", 256},
                                                                                  {"attention.value_length", 256},
                                                                                  {"rope.dimension_count", 64},
                                                                                  {"ssm.conv_kernel", 4},
                                                                                  {"ssm.state_size", 128},
                                                                                  {"ssm.group_count", 16},
                                                                                  {"ssm.time_step_rank", 48},
                                                                                  {"ssm.inner_size", 6144},
                                                                                  {"full_attention_interval", 4},
                                                                                  {"nextn_predict_layers", 1}}),
                           .numbers = {{"attention.layer_norm_rms_epsilon", 1e-6}, {"rope.freq_base", 1e7}}});
    for (const char* architecture : {"qwen35moe", "qwen3next"})
        expect_all_keys_known({.architecture = architecture,
                               .counts = {{"block_count", 40},
                                          {"embedding_length", 2048},
                                          {"attention.head_count", 16},
                                          {"attention.head_count_kv", 2},
                                          {"context_length", 262144},
                                          {"attention.key_length", 256},
                                          {"attention.value_length", 256},
                                          {"rope.dimension_count", 64},
                                          {"ssm.conv_kernel", 4},
                                          {"ssm.state_size", 128},
                                          {"ssm.group_count", 16},
                                          {"ssm.time_step_rank", 32},
                                          {"ssm.inner_size", 4096},
                                          {"full_attention_interval", 4},
                                          {"expert_count", 256},
                                          {"expert_used_count", 8},
                                          {"expert_feed_forward_length", 512},
                                          {"expert_shared_feed_forward_length", 512}},
                               .numbers = {{"attention.layer_norm_rms_epsilon", 1e-6}, {"rope.freq_base", 1e7}}});
    // Hostile ones.
    const auto message = [](GgufKeyValues keys, const char* key, double value, bool is_count = false) {
        (is_count ? keys.counts : keys.numbers)[key] = value;
        return error_text([&] { static_cast<void>(keys.description()); });
    };
    EXPECT_THAT(message(mistral3, "attention.temperature_scale", -3.0), HasSubstr("queries grow by -3"));
    EXPECT_THAT(message(mistral3, "rope.scaling.original_context_length", 0, true), HasSubstr("every 0 positions"));
    EXPECT_THAT(message(mistral3, "rope.dimension_count", 64, true), HasSubstr("rope turns only 64 of 128"));
    EXPECT_THAT(message(mistral3, "logit_scale", 2.0), HasSubstr("mistral3.logit_scale = 2 is not served"));
    EXPECT_THAT(message(muse_keys, "logit_scale", 0.0), HasSubstr("the scale of logits is 0"));
    EXPECT_THAT(message(muse_keys, "residual_scale", 0.5), HasSubstr("residual_scale = 0.5 is not served"));
    GgufKeyValues without_window = muse_keys;
    without_window.counts.erase("attention.sliding_window");
    EXPECT_THAT(error_text([&] { static_cast<void>(without_window.description()); }),
                HasSubstr("muse-glimmer.attention.sliding_window is missing"));
}

}  // namespace
}  // namespace slipstream
