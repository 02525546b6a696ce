// config.json and generation_config.json: fields, defaults and spellings of each architecture.
#include "runtime/formats/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>

#include "tests/support/error_text.h"

namespace slipstream {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A config.json of the five sizes that must be there, and `more` fields (", "-joined, may be empty).
std::string config(const std::string& class_name, const std::string& more = "") {
    return fmt::format(R"({{"architectures":["{}"],"hidden_size":64,"intermediate_size":96,"num_hidden_layers":4,)"
                       R"("num_attention_heads":4,"vocab_size":100{}{}}})",
                       class_name, more.empty() ? "" : ",", more);
}

HfConfig parse(const std::string& json) {
    return parse_hf_config(json, "config.json");
}

ModelConfig llama(const std::string& more) {
    return parse(config("LlamaForCausalLM", more)).model;
}

std::string message(const std::string& json) {
    return error_text([&] { static_cast<void>(parse(json)); });
}

TEST(HfConfig, TakesTheDefaultsOfEachArchitecture) {
    const ModelConfig a = llama("");
    EXPECT_EQ(a.family, "llama");
    EXPECT_EQ(a.attention(0).n_kv_heads, 4);
    EXPECT_EQ(a.attention(0).head_dim, 16);
    EXPECT_EQ(a.ropes[0].n_rotated, 16);
    EXPECT_EQ(a.context_tokens, 2048);
    EXPECT_EQ(a.rms_eps, 1e-6F);
    EXPECT_EQ(a.ropes[0].theta, 10000.0);
    EXPECT_EQ(a.rope_layout, RopeLayout::Half);
    EXPECT_FALSE(a.tied_embeddings);
    const ModelConfig mistral =
        parse(R"({"model_type":"mistral","hidden_size":64,"intermediate_size":96,"vocab_size":100,
        "num_hidden_layers":4,"num_attention_heads":16})")
            .model;
    EXPECT_EQ(mistral.family, "mistral");
    EXPECT_EQ(mistral.attention(0).n_kv_heads, 8);
    EXPECT_EQ(mistral.context_tokens, 131072);
    EXPECT_THAT(layer_windows(mistral), ElementsAre(4096, 4096, 4096, 4096));
    const ModelConfig phi = parse(config("Phi3ForCausalLM")).model;
    EXPECT_EQ(phi.context_tokens, 4096);
    EXPECT_EQ(phi.rms_eps, 1e-5F);
    EXPECT_THAT(layer_windows(phi), IsEmpty());
    const ModelConfig qwen3 = parse(config("Qwen3ForCausalLM", R"("num_key_value_heads":2)")).model;
    EXPECT_EQ(qwen3.attention(0).head_dim, 128);
    EXPECT_EQ(qwen3.context_tokens, 32768);
    const ModelConfig qwen2 = parse(config("Qwen2ForCausalLM", R"("num_key_value_heads":null)")).model;
    EXPECT_EQ(qwen2.attention(0).n_kv_heads, 4);
    EXPECT_EQ(qwen2.attention(0).head_dim, 16);
}

TEST(HfConfig, ReadsItsFields) {
    const HfConfig read = parse(config(
        "LlamaForCausalLM",
        R"("num_key_value_heads":2,"head_dim":32,"max_position_embeddings":512,"rms_norm_eps":0.001,"rope_theta":500000.0,
           "tie_word_embeddings":true,"torch_dtype":"bfloat16","bos_token_id":7,"eos_token_id":[8,9],"_name_or_path":"a\nb")"));
    EXPECT_EQ(read.model.attention(0).n_kv_heads, 2);
    EXPECT_EQ(read.model.attention(0).head_dim, 32);
    EXPECT_EQ(read.model.context_tokens, 512);
    EXPECT_EQ(read.model.rms_eps, 0.001F);
    EXPECT_EQ(read.model.ropes[0].theta, 500000.0);
    EXPECT_TRUE(read.model.tied_embeddings);
    EXPECT_EQ(read.dtype, DType::BF16);
    EXPECT_EQ(read.model.kv_dtype, DType::BF16);
    EXPECT_EQ(read.bos_id, 7);
    EXPECT_THAT(read.end_tokens, ElementsAre(8, 9));
    EXPECT_EQ(read.model.name, "a\nb");
    EXPECT_EQ(parse(config("LlamaForCausalLM", R"("dtype":"float16","torch_dtype":"bfloat16")")).dtype, DType::F16);
    EXPECT_EQ(parse(config("LlamaForCausalLM", R"("dtype":"float64")")).dtype, std::nullopt);
    EXPECT_THAT(parse(config("LlamaForCausalLM", R"("eos_token_id":null)")).end_tokens, IsEmpty());
}

// As in transformers: of a text model inside a larger one, the flag of the whole counts; without it, the tensors say.
TEST(HfConfig, TheWholeConfigurationSaysWhetherEmbeddingsAreTied) {
    const auto tied = [](const std::string& outer, const std::string& inner) {
        const HfConfig read = parse(fmt::format(
            R"({{"architectures":["Mistral3ForConditionalGeneration"],{} "text_config":{{"model_type":"mistral",{}
               "vocab_size":64,"hidden_size":32,"intermediate_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":4}}}})",
            outer, inner));
        return std::pair(read.model.tied_embeddings, read.is_tied_without_head);
    };
    const std::string yes = R"("tie_word_embeddings":true,)", no = R"("tie_word_embeddings":false,)";
    EXPECT_EQ(tied(no, yes), std::pair(false, false));
    EXPECT_EQ(tied(yes, no), std::pair(true, false));
    EXPECT_EQ(tied("", yes), std::pair(false, true));
    EXPECT_EQ(tied("", no), std::pair(false, true));
}

TEST(HfConfig, KnowsWhichProjectionsHaveABias) {
    const auto rules = [](const char* name, const char* more) {
        const BindingRules found = parse(config(name, more)).biases;
        return std::pair(found.qkv_bias == BiasRule::Required, found.out_bias == BiasRule::Required);
    };
    const char* kv = R"("num_key_value_heads":4,"attention_bias":true)";
    EXPECT_EQ(rules("LlamaForCausalLM", ""), std::pair(false, false));
    EXPECT_EQ(rules("LlamaForCausalLM", kv), std::pair(true, true));
    EXPECT_EQ(rules("Qwen2ForCausalLM", R"("num_key_value_heads":4)"), std::pair(true, false));
    EXPECT_EQ(rules("Qwen3ForCausalLM", R"("num_key_value_heads":4)"), std::pair(false, false));
    EXPECT_EQ(rules("Qwen3ForCausalLM", kv), std::pair(true, true));
    EXPECT_EQ(rules("Phi3ForCausalLM", kv), std::pair(false, false));
}

TEST(HfConfig, RefusesByName) {
    EXPECT_THAT(message(config("GemmaForCausalLM")),
                HasSubstr("architecture \"GemmaForCausalLM\" is not served (served: Llama"));
    EXPECT_THAT(message(R"({"model_type":"gpt2"})"), HasSubstr("architecture \"gpt2\""));
    EXPECT_THAT(message("{}"), HasSubstr("architectures is missing"));
    EXPECT_THAT(message(config("LlamaForCausalLM", R"("hidden_act":"gelu")")), HasSubstr("activation \"gelu\""));
    EXPECT_THAT(message(config("LlamaForCausalLM", R"("mlp_bias":true)")), HasSubstr("mlp_bias"));
    EXPECT_THAT(message(config("LlamaForCausalLM", R"("quantization_config":{"quant_method":"awq"})")),
                HasSubstr("\"awq\""));
    EXPECT_THAT(message(config("LlamaForCausalLM", R"("rope_scaling":{"rope_type":"spiral"})")),
                HasSubstr("\"spiral\""));
    EXPECT_THROW(static_cast<void>(parse(config("GemmaForCausalLM"))), Unsupported);
}

TEST(HfConfig, NamesTheFieldThatIsWrong) {
    for (const char* key :
         {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}) {
        std::string json = config("LlamaForCausalLM");
        json.replace(json.find(key), 1, "X");
        EXPECT_EQ(message(json), fmt::format("config.json: field {} is missing", key));
    }
    EXPECT_THAT(message(config("LlamaForCausalLM", R"("head_dim":"x")")),
                HasSubstr("field head_dim is not an integer"));
    EXPECT_THAT(message(config("LlamaForCausalLM", R"("num_key_value_heads":3)")), HasSubstr("not a multiple"));
    EXPECT_THAT(message(config("LlamaForCausalLM", R"("max_position_embeddings":99999999999999999999)")),
                HasSubstr("max_position_embeddings is not an integer"));
    EXPECT_THAT(message(config("LlamaForCausalLM", R"("head_dim":9223372036854775807)")), HasSubstr("head_dim"));
    EXPECT_THAT(message(config("LlamaForCausalLM", R"("rope_theta":null,"partial_rotary_factor":-1)")),
                HasSubstr("partial_rotary_factor is -1"));
    EXPECT_THAT(message(config("LlamaForCausalLM", R"("rope_scaling":7)")), HasSubstr("rope_scaling is not an object"));
    EXPECT_THAT(message("[1]"), HasSubstr("no object"));
    EXPECT_THAT(message("{\"a\":1"), HasSubstr("not JSON at byte"));
    EXPECT_THAT(message("{\"a\":1,\"a\":2}"), HasSubstr("occurs twice"));
}

TEST(HfConfig, ReadsRopeScalingInBothSpellings) {
    for (const char* type : {"type", "rope_type"}) {
        const RopeScaling linear =
            llama(fmt::format(R"("rope_scaling":{{"{}":"linear","factor":2}})", type)).ropes[0].scaling;
        EXPECT_EQ(linear.kind, RopeScalingKind::Linear);
        EXPECT_EQ(linear.factor, 2.0);
        const RopeScaling dynamic =
            llama(fmt::format(R"("rope_scaling":{{"{}":"dynamic","factor":3.5}})", type)).ropes[0].scaling;
        EXPECT_EQ(dynamic.kind, RopeScalingKind::Dynamic);
        EXPECT_EQ(dynamic.factor, 3.5);
        EXPECT_EQ(dynamic.original_context, 0);
    }
    EXPECT_EQ(llama(R"("rope_scaling":null)").ropes[0].scaling.kind, RopeScalingKind::None);
    EXPECT_EQ(llama(R"("rope_scaling":{"rope_type":"default"})").ropes[0].scaling.kind, RopeScalingKind::None);
    EXPECT_THAT(message(config("LlamaForCausalLM", R"("rope_scaling":{"type":"linear"})")),
                HasSubstr("factor of the rope scaling"));
    const RopeScaling llama3 =
        llama(R"("rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
                 "original_max_position_embeddings":8192})")
            .ropes[0]
            .scaling;
    EXPECT_EQ(llama3.kind, RopeScalingKind::Llama3);
    EXPECT_EQ(llama3.factor, 8.0);
    EXPECT_EQ(llama3.high_freq_factor, 4.0);
    EXPECT_EQ(llama3.original_context, 8192);
}

TEST(HfConfig, ReadsYarn) {
    const RopeScaling yarn = llama(R"("max_position_embeddings":128,"rope_scaling":{"type":"yarn","factor":4.0,
        "original_max_position_embeddings":32,"beta_fast":16,"mscale":0.7,"mscale_all_dim":0.5})")
                                 .ropes[0]
                                 .scaling;
    EXPECT_EQ(yarn.kind, RopeScalingKind::Yarn);
    EXPECT_EQ(yarn.original_context, 32);
    EXPECT_EQ(yarn.beta_fast, 16.0);
    EXPECT_EQ(yarn.beta_slow, 1.0);
    EXPECT_EQ(yarn.mscale, 0.7);
    EXPECT_EQ(yarn.attention_factor, std::nullopt);
    const RopeScaling derived =
        llama(R"("max_position_embeddings":128,"rope_scaling":{"type":"yarn","factor":null,"attention_factor":1.5,
                 "original_max_position_embeddings":32})")
            .ropes[0]
            .scaling;
    EXPECT_EQ(derived.factor, 4.0);
    EXPECT_EQ(derived.attention_factor, 1.5);
    EXPECT_TRUE(derived.rounds_bounds);
    EXPECT_FALSE(llama(R"("rope_scaling":{"type":"yarn","factor":4,"truncate":false})").ropes[0].scaling.rounds_bounds);
}

TEST(HfConfig, ReadsLongRope) {
    const auto phi = [](const std::string& more) { return parse(config("Phi3ForCausalLM", more)).model; };
    const std::string factors = R"("short_factor":[1,1,1,1,1,1,1,1],"long_factor":[2,2,2,2,2,2,2,2])";
    for (const char* type : {"longrope", "su", "yarn"}) {
        const ModelConfig read =
            phi(fmt::format(R"("max_position_embeddings":131072,"original_max_position_embeddings":4096,
            "rope_scaling":{{"type":"{}",{}}})",
                            type, factors));
        EXPECT_EQ(read.ropes[0].scaling.kind, RopeScalingKind::LongRope) << type;
        EXPECT_EQ(read.ropes[0].scaling.factor, 32.0);
        EXPECT_EQ(read.ropes[0].scaling.original_context, 4096);
        EXPECT_EQ(read.ropes[0].scaling.long_factors.size(), 8U);
    }
    EXPECT_EQ(phi(fmt::format(R"("max_position_embeddings":8192,"rope_scaling":{{"type":"su",{}}})", factors))
                  .ropes[0]
                  .scaling.original_context,
              4096);
    EXPECT_EQ(phi(fmt::format(R"("partial_rotary_factor":0.75,"rope_scaling":null)")).ropes[0].n_rotated, 12);
    EXPECT_THAT(
        message(config("Phi3ForCausalLM", R"("rope_scaling":{"type":"su","short_factor":[1],"long_factor":[1]})")),
        HasSubstr("1 rope factors for 8"));
    EXPECT_THAT(message(config("Phi3ForCausalLM", R"("rope_scaling":{"type":"su"})")), HasSubstr("longrope"));
}

TEST(HfConfig, ReadsRopeParametersOfTransformers5) {
    const ModelConfig read = llama(R"("rope_parameters":{"rope_type":"llama3","rope_theta":500000.0,"factor":8.0,
        "low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":64,"partial_rotary_factor":0.5})");
    EXPECT_EQ(read.ropes[0].theta, 500000.0);
    EXPECT_EQ(read.ropes[0].n_rotated, 8);
    EXPECT_EQ(read.ropes[0].scaling.kind, RopeScalingKind::Llama3);
    EXPECT_EQ(llama(R"("rope_parameters":{"rope_type":"default","rope_theta":7000.0})").ropes[0].theta, 7000.0);
    EXPECT_THAT(message(config("LlamaForCausalLM", R"("rope_parameters":{"full_attention":{"rope_theta":1.0}})")),
                HasSubstr("differ between layer types"));
}

TEST(HfConfig, ReadsSlidingWindows) {
    const auto windows = [](const char* name, const std::string& more) {
        return layer_windows(parse(config(name, R"("num_key_value_heads":4,)" + more)).model);
    };
    EXPECT_THAT(windows("MistralForCausalLM", R"("sliding_window":6)"), ElementsAre(6, 6, 6, 6));
    EXPECT_THAT(windows("MistralForCausalLM", R"("sliding_window":null)"), IsEmpty());
    EXPECT_THAT(windows("Phi3ForCausalLM", R"("sliding_window":2047)"), ElementsAre(2047, 2047, 2047, 2047));
    EXPECT_THAT(windows("LlamaForCausalLM", R"("sliding_window":6)"), IsEmpty());
    EXPECT_THAT(windows("Qwen2ForCausalLM", R"("sliding_window":6,"use_sliding_window":false)"), IsEmpty());
    EXPECT_THAT(windows("Qwen2ForCausalLM", R"("sliding_window":6)"), IsEmpty());
    EXPECT_THAT(windows("Qwen2ForCausalLM", R"("sliding_window":6,"use_sliding_window":true,"max_window_layers":1)"),
                ElementsAre(0, 6, 6, 6));
    EXPECT_THAT(windows("Qwen2ForCausalLM", R"("sliding_window":6,"use_sliding_window":true)"), IsEmpty());
    EXPECT_THAT(windows("Qwen3ForCausalLM", R"("sliding_window":6,"use_sliding_window":true,"layer_types":
        ["full_attention","sliding_attention","full_attention","sliding_attention"])"),
                ElementsAre(0, 6, 0, 6));
    EXPECT_THAT(
        message(config("Qwen3ForCausalLM", R"("num_key_value_heads":4,"sliding_window":6,"use_sliding_window":true,
        "layer_types":["full_attention"])")),
        HasSubstr("not a list of 4 layers"));
    EXPECT_THAT(message(config("MistralForCausalLM", R"("num_key_value_heads":4,"sliding_window":-1)")),
                HasSubstr("sliding_window is -1"));
}

TEST(HfConfig, ReadsGemma3InBothSpellings) {
    const char* old_spelling =
        R"("num_key_value_heads":2,"head_dim":16,"rope_theta":1e6,"rope_local_base_freq":5000,"sliding_window":9,
           "sliding_window_pattern":2,"query_pre_attn_scalar":24,"rope_scaling":{"rope_type":"linear","factor":8},
           "torch_dtype":"bfloat16")";
    const char* new_spelling =
        R"("num_key_value_heads":2,"head_dim":16,"sliding_window":9,"query_pre_attn_scalar":24,"dtype":"bfloat16",
           "layer_types":["sliding_attention","full_attention","sliding_attention","full_attention"],
           "rope_parameters":{"full_attention":{"rope_type":"linear","factor":8,"rope_theta":1e6},
                              "sliding_attention":{"rope_type":"default","rope_theta":5000}})";
    for (const char* fields : {old_spelling, new_spelling}) {
        std::string json = config("Gemma3ForCausalLM", fields);
        const ModelConfig read = parse(json).model;
        EXPECT_EQ(read.family, "gemma3");
        EXPECT_THAT(layer_windows(read), ElementsAre(9, 0, 9, 0));
        ASSERT_EQ(read.ropes.size(), 2U);
        EXPECT_EQ(read.ropes[0].theta, 1e6);
        EXPECT_EQ(read.ropes[0].scaling.kind, RopeScalingKind::Linear);
        EXPECT_EQ(read.ropes[1].theta, 5000.0);
        EXPECT_EQ(read.ropes[1].scaling.kind, RopeScalingKind::None);
        EXPECT_EQ(read.attention(0).rope, 1U);
        EXPECT_EQ(read.attention(1).rope, 0U);
        EXPECT_FLOAT_EQ(read.attention(0).scale(), 1.0F / std::sqrt(24.0F));
        EXPECT_EQ(read.layers[0].feed_forward.activation, GatedActivation::GeluTanh);
        EXPECT_EQ(read.embedding_scale, 8.0F);  // sqrt(64), in bfloat16
        EXPECT_EQ(read.norm_offset, 1.0F);
        EXPECT_EQ(read.logit_softcap, 0.0F);
        EXPECT_TRUE(read.tied_embeddings);
    }
}

TEST(HfConfig, RopeOfWindowedLayersMustBeAnObject) {
    EXPECT_THAT(message(config("Gemma3ForCausalLM", R"("rope_parameters":{"full_attention":{"rope_theta":1e6},
                                                      "sliding_attention":7})")),
                HasSubstr("sliding_attention is not an object"));
}

TEST(HfConfig, ReadsTheTextModelOfALargerOne) {
    // As in the published Gemma 3 4B: most fields of the text model are its defaults.
    const HfConfig read = parse(R"({"architectures":["Gemma3ForConditionalGeneration"],"model_type":"gemma3",
        "eos_token_id":[1,106],"torch_dtype":"bfloat16","text_config":{"hidden_size":2560,"intermediate_size":10240,
        "model_type":"gemma3_text","num_hidden_layers":34,"rope_scaling":{"factor":8.0,"rope_type":"linear"},
        "sliding_window":1024},"vision_config":{"hidden_size":1152}})");
    EXPECT_EQ(read.model.attention(0).n_q_heads, 8);
    EXPECT_EQ(read.model.attention(0).n_kv_heads, 4);
    EXPECT_EQ(read.model.attention(0).head_dim, 256);
    EXPECT_EQ(read.model.vocab, 262208);
    EXPECT_EQ(read.model.window(4), 1024);
    EXPECT_EQ(read.model.window(5), 0);
    EXPECT_THAT(read.end_tokens, ElementsAre(1, 106));
    EXPECT_EQ(read.dtype, DType::BF16);
    EXPECT_THAT(message(R"({"architectures":["Gemma3ForConditionalGeneration"]})"),
                HasSubstr("text_config is missing"));
}

TEST(HfConfig, FieldsOfOtherModelsInsideAreNotRead) {
    const HfConfig read = parse(config("LlamaForCausalLM", R"("text_config":{"hidden_size":8})"));
    EXPECT_EQ(read.model.d_model, 64);
    EXPECT_FALSE(read.is_nested);
    EXPECT_THAT(message(config("LlamaForCausalLM", R"("hidden_act":"gelu","hidden_activation":"silu")")),
                HasSubstr("activation \"gelu\""));
}

TEST(HfConfig, ReadsGemma2) {
    const ModelConfig read = parse(config("Gemma2ForCausalLM", R"("sliding_window":9,"head_dim":16)")).model;
    EXPECT_THAT(layer_windows(read), ElementsAre(9, 0, 9, 0));
    EXPECT_EQ(read.attention(0).softcap, 50.0F);
    EXPECT_EQ(read.logit_softcap, 30.0F);
    EXPECT_FLOAT_EQ(read.attention(0).scale(), 1.0F / 16.0F);
    EXPECT_EQ(parse(config("Gemma2ForCausalLM", R"("attn_logit_softcapping":null)")).model.attention(0).softcap, 0.0F);
    const auto refusal = [](const char* fields) { return message(config("Gemma2ForCausalLM", fields)); };
    EXPECT_THAT(refusal(R"("attn_logit_softcapping":-1)"), HasSubstr("softcap of attention scores is -1"));
    EXPECT_THAT(refusal(R"("final_logit_softcapping":1e-60)"), HasSubstr("softcap of logits is 1e-60"));
    EXPECT_THAT(refusal(R"("query_pre_attn_scalar":-4)"), HasSubstr("query_pre_attn_scalar is -4"));
    EXPECT_THAT(refusal(R"("query_pre_attn_scalar":0)"), HasSubstr("query_pre_attn_scalar is 0"));
    EXPECT_THAT(refusal(R"("sliding_window_pattern":0)"), HasSubstr("sliding_window_pattern is below 1"));
    EXPECT_THAT(refusal(R"("sliding_window":0)"), HasSubstr("sliding_window is 0"));
    EXPECT_THAT(refusal(R"("use_bidirectional_attention":true)"), HasSubstr("not causal"));
    EXPECT_THAT(refusal(R"("hidden_activation":"gelu")"), HasSubstr("activation \"gelu\" is not served"));
}

TEST(HfConfig, ReadsGenerationDefaults) {
    const GenerationDefaults read = parse_generation_config(
        R"({"eos_token_id":[3,4],"temperature":0.6,"top_k":20,"top_p":0.9,"min_p":0.05,"repetition_penalty":1.1,
            "do_sample":true,"transformers_version":"4.37.0"})",
        "generation_config.json");
    EXPECT_THAT(read.end_tokens, ElementsAre(3, 4));
    EXPECT_EQ(read.temperature, 0.6);
    EXPECT_EQ(read.top_k, 20);
    EXPECT_EQ(read.top_p, 0.9);
    EXPECT_EQ(read.min_p, 0.05);
    EXPECT_EQ(read.repeat_penalty, 1.1);
    EXPECT_EQ(read.do_sample, true);
    EXPECT_THAT(parse_generation_config(R"({"eos_token_id":5})", "g").end_tokens, ElementsAre(5));
    EXPECT_THAT(error_text([] { static_cast<void>(parse_generation_config(R"({"top_k":"x"})", "g.json")); }),
                HasSubstr("g.json: field top_k is not an integer"));
}

}  // namespace
}  // namespace slipstream
