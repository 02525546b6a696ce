// GGUF keys to a ModelConfig and a vocabulary.
#include "runtime/formats/gguf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>

#include "runtime/formats/gguf_vocabulary.h"
#include "tests/support/error_text.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Opens what the writer makes; the model keeps the mapping alive after the folder is gone.
std::unique_ptr<ModelFiles> open(const GgufWriter& writer) {
    const TempFolder folder;
    return ModelFiles::open(folder.write("tiny.gguf", writer.bytes()));
}

ModelConfig config_of(const GgufWriter& writer) {
    return open(writer)->config();
}

std::string message(const GgufWriter& writer) {
    return error_text([&] { static_cast<void>(open(writer)); });
}

/// The tiny model under another architecture's name, keys renamed.
GgufWriter tiny(const std::string& architecture) {
    GgufWriter writer = tiny_llama_gguf();
    for (const char* key : {"context_length", "embedding_length", "block_count", "feed_forward_length",
                            "attention.head_count", "attention.head_count_kv", "attention.layer_norm_rms_epsilon"})
        writer.erase(fmt::format("llama.{}", key));
    writer.set("general.architecture", architecture.c_str());
    const auto key = [&](const char* suffix) { return fmt::format("{}.{}", architecture, suffix); };
    writer.set<std::uint32_t>(key("context_length"), 32).set<std::uint32_t>(key("embedding_length"), 8);
    writer.set<std::uint32_t>(key("block_count"), 2).set<std::uint32_t>(key("feed_forward_length"), 12);
    writer.set<std::uint32_t>(key("attention.head_count"), 2).set<std::uint32_t>(key("attention.head_count_kv"), 1);
    writer.set(key("attention.layer_norm_rms_epsilon"), 1e-6F);
    return writer;
}

TEST(GgufConfig, ReadsALlama) {
    const ModelConfig config = config_of(tiny_llama_gguf());
    EXPECT_EQ(config.family, "llama");
    EXPECT_EQ(config.name, "tiny");
    EXPECT_EQ(config.d_model, 8);
    EXPECT_EQ(config.layers[0].feed_forward.d_ff, 12);
    EXPECT_EQ(config.n_layers(), 2);
    EXPECT_EQ(config.attention(0).n_q_heads, 2);
    EXPECT_EQ(config.attention(0).n_kv_heads, 1);
    EXPECT_EQ(config.attention(0).head_dim, 4);
    EXPECT_EQ(config.vocab, 10);
    EXPECT_EQ(config.context_tokens, 32);
    EXPECT_EQ(config.rms_eps, 1e-5F);
    EXPECT_EQ(config.ropes[0].theta, 10000.0);
    EXPECT_EQ(config.ropes[0].n_rotated, 4);
    EXPECT_EQ(config.rope_layout, RopeLayout::Interleaved);
    EXPECT_EQ(config.ropes[0].scaling.kind, RopeScalingKind::None);
    EXPECT_THAT(layer_windows(config), IsEmpty());
    EXPECT_FALSE(config.tied_embeddings);
    EXPECT_EQ(config.kv_dtype, DType::F32);
}

TEST(GgufConfig, FollowsOptionalKeys) {
    GgufWriter writer = tiny_llama_gguf();
    writer.erase("llama.attention.head_count_kv").erase_tensor("output.weight");
    writer.set<std::uint32_t>("llama.attention.key_length", 16).set<std::uint32_t>("llama.attention.value_length", 16);
    writer.set<std::uint32_t>("llama.rope.dimension_count", 8).set("llama.rope.freq_base", 5e5F);
    const ModelConfig config = config_of(writer);
    EXPECT_EQ(config.attention(0).n_kv_heads, 2);
    EXPECT_EQ(config.attention(0).head_dim, 16);
    EXPECT_EQ(config.ropes[0].n_rotated, 8);
    EXPECT_EQ(config.ropes[0].theta, 500000.0);
    EXPECT_TRUE(config.tied_embeddings);
}

TEST(GgufConfig, KnowsTheRopeLayoutOfEachArchitecture) {
    EXPECT_EQ(config_of(tiny("qwen2")).family, "qwen2");
    EXPECT_EQ(config_of(tiny("qwen3")).family, "qwen3");
    EXPECT_EQ(config_of(tiny("phi3")).family, "phi3");
    for (const char* name : {"qwen2", "qwen3", "phi3"}) EXPECT_EQ(config_of(tiny(name)).rope_layout, RopeLayout::Half);
}

TEST(GgufConfig, KnowsWhatGemmaDoesNotStore) {
    GgufWriter file = tiny("gemma3");
    file.set<std::uint32_t>("gemma3.block_count", 7).set<std::uint32_t>("gemma3.attention.sliding_window", 5);
    file.set("gemma3.rope.freq_base", 1e6F).set("gemma3.rope.scaling.factor", 8.0F);
    const ModelConfig gemma3 = config_of(file);
    EXPECT_THAT(layer_windows(gemma3), testing::ElementsAre(5, 5, 5, 5, 5, 0, 5));
    ASSERT_EQ(gemma3.ropes.size(), 2U);
    EXPECT_EQ(gemma3.ropes[0].theta, 1e6);
    EXPECT_EQ(gemma3.ropes[0].scaling.factor, 8.0);
    EXPECT_EQ(gemma3.ropes[1].theta, 1e4);
    EXPECT_EQ(gemma3.ropes[1].scaling.kind, RopeScalingKind::None);
    EXPECT_EQ(gemma3.attention(0).rope, 1U);
    EXPECT_EQ(gemma3.attention(5).rope, 0U);
    EXPECT_FLOAT_EQ(gemma3.embedding_scale, std::sqrt(8.0F));
    EXPECT_EQ(gemma3.norm_offset, 0.0F);
    EXPECT_FLOAT_EQ(gemma3.attention(0).scale(), 0.5F);
    EXPECT_EQ(config_of(file.set("gemma3.rope.freq_base_swa", 2e4F)).ropes[1].theta, 2e4);
    // The 27B models scale scores by d_model / heads; their number of layers tells.
    EXPECT_FLOAT_EQ(config_of(file.set<std::uint32_t>("gemma3.attention.key_length", 2)
                                  .set<std::uint32_t>("gemma3.attention.value_length", 2)
                                  .set<std::uint32_t>("gemma3.rope.dimension_count", 2)
                                  .set<std::uint32_t>("gemma3.block_count", 62))
                        .attention(0)
                        .scale(),
                    0.5F);
    GgufWriter second = tiny("gemma2");
    EXPECT_THAT(layer_windows(config_of(second)), testing::ElementsAre(4096, 0));
    const ModelConfig gemma2 = config_of(second.set<std::uint32_t>("gemma2.attention.sliding_window", 5));
    EXPECT_THAT(layer_windows(gemma2), testing::ElementsAre(5, 0));
    EXPECT_EQ(gemma2.attention(1).softcap, 50.0F);
    EXPECT_EQ(gemma2.logit_softcap, 30.0F);
    EXPECT_THAT(message(second.set("gemma2.attn_logit_softcapping", -2.0F)), HasSubstr("softcap of attention scores"));
    EXPECT_THAT(message(tiny("llama").set("llama.attn_logit_softcapping", 2.0F)),
                HasSubstr("llama.attn_logit_softcapping = 2 is not served"));
}

TEST(GgufConfig, RefusesByName) {
    EXPECT_THAT(message(tiny("qwen2moe")), HasSubstr("architecture \"qwen2moe\" is not served (served: llama"));
    EXPECT_THAT(message(tiny("mistral4")), HasSubstr("\"mistral4\""));
    EXPECT_THAT(message(tiny("qwen2").set<std::uint32_t>("qwen2.expert_count", 8)),
                HasSubstr("a mixture of 8 experts, which is not served"));
    EXPECT_THAT(message(tiny_llama_gguf().set("llama.logit_scale", 2.0F)),
                HasSubstr("llama.logit_scale = 2 is not served"));
    EXPECT_EQ(message(tiny_llama_gguf().set<std::uint32_t>("llama.expert_count", 0)), "nothing thrown");
    EXPECT_THAT(message(tiny_llama_gguf().set("llama.rope.scaling.type", "spiral")),
                HasSubstr("rope scaling \"spiral\""));
    EXPECT_THAT(message(tiny_llama_gguf().set<std::uint32_t>("llama.attention.key_length", 8)),
                HasSubstr("keys of 8 and values of 4"));
}

TEST(GgufConfig, NamesWhatIsMissingOrContradictory) {
    for (const char* key :
         {"general.architecture", "llama.context_length", "llama.embedding_length", "llama.block_count",
          "llama.feed_forward_length", "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"})
        EXPECT_THAT(message(tiny_llama_gguf().erase(key)), HasSubstr(fmt::format("metadata {} is missing", key)));
    EXPECT_THAT(message(tiny_llama_gguf().erase_tensor("token_embd.weight")), HasSubstr("token_embd.weight"));
    EXPECT_THAT(message(tiny_llama_gguf().set<std::uint32_t>("llama.attention.head_count", 0)),
                HasSubstr("0 attention heads"));
    EXPECT_THAT(message(tiny_llama_gguf().set<std::uint32_t>("llama.attention.head_count", 3)),
                HasSubstr("do not divide"));
    EXPECT_THAT(message(tiny_llama_gguf().set<std::uint32_t>("llama.block_count", 0)), HasSubstr("n_layers is 0"));
    EXPECT_THAT(message(tiny_llama_gguf().set<std::int32_t>("llama.context_length", -1)),
                HasSubstr("context length is -1"));
    EXPECT_THAT(message(tiny_llama_gguf().set("llama.context_length", "many")), HasSubstr("not an integer"));
    EXPECT_THAT(message(tiny_llama_gguf().set("llama.attention.layer_norm_rms_epsilon", std::nanf(""))),
                HasSubstr("epsilon"));
}

TEST(GgufConfig, TakesEqualNumbersForEachLayerOnly) {
    const auto heads = [](std::int32_t a, std::int32_t b) {
        return tiny_llama_gguf().set("llama.attention.head_count_kv", gguf_array({gguf_scalar(a), gguf_scalar(b)}));
    };
    EXPECT_EQ(config_of(heads(1, 1)).attention(0).n_kv_heads, 1);
    EXPECT_THAT(message(heads(1, 2)), HasSubstr("differs between layers ([1, 2])"));
    GgufWriter writer = tiny_llama_gguf();
    writer.set("llama.feed_forward_length", gguf_array({gguf_scalar<std::uint32_t>(12)}));
    EXPECT_THAT(message(writer), HasSubstr("one integer for each of 2 layers"));
}

TEST(GgufConfig, AFileWithoutLayersMayHaveEmptyArrays) {
    GgufWriter writer = tiny_llama_gguf().set<std::uint32_t>("llama.block_count", 0);
    writer.set("llama.feed_forward_length", gguf_array({}));
    EXPECT_THAT(message(writer), HasSubstr("n_layers is 0"));
}

TEST(GgufConfig, ReadsRopeScaling) {
    GgufWriter linear = tiny_llama_gguf();
    linear.set("llama.rope.scaling.type", "linear").set("llama.rope.scaling.factor", 4.0F);
    EXPECT_EQ(config_of(linear).ropes[0].scaling.kind, RopeScalingKind::Linear);
    EXPECT_EQ(config_of(linear).ropes[0].scaling.factor, 4.0);
    EXPECT_EQ(config_of(tiny_llama_gguf().set("llama.rope.scale_linear", 2.0F)).ropes[0].scaling.factor, 2.0);
    EXPECT_EQ(config_of(tiny_llama_gguf().set("llama.rope.scaling.type", "none").set("llama.rope.scaling.factor", 4.0F))
                  .ropes[0]
                  .scaling.kind,
              RopeScalingKind::None);

    GgufWriter yarn = tiny("qwen2");
    yarn.set("qwen2.rope.scaling.type", "yarn").set("qwen2.rope.scaling.factor", 4.0F);
    yarn.set<std::uint32_t>("qwen2.rope.scaling.original_context_length", 8);
    RopeScaling scaling = config_of(yarn).ropes[0].scaling;
    EXPECT_EQ(scaling.kind, RopeScalingKind::Yarn);
    EXPECT_EQ(scaling.original_context, 8);
    EXPECT_EQ(scaling.beta_fast, 32.0);
    EXPECT_EQ(scaling.attention_factor, std::nullopt);
    yarn.set("qwen2.rope.scaling.attn_factor", 0.5F).set("qwen2.rope.scaling.yarn_beta_fast", 16.0F);
    scaling = config_of(yarn).ropes[0].scaling;
    EXPECT_EQ(scaling.beta_fast, 16.0);
    EXPECT_NEAR(*scaling.attention_factor, 0.5 * (1.0 + 0.1 * std::log(4.0)), 1e-12);
}

TEST(GgufConfig, ReadsRopeFactorsFromTensors) {
    EXPECT_THAT(config_of(tiny_llama_gguf().floats("rope_freqs.weight", {2}, 1)).ropes[0].scaling.frequency_divisors,
                ElementsAre(1.5, 2.5));
    EXPECT_EQ(config_of(tiny_llama_gguf().floats("rope_freqs.weight", {2}, 1)).ropes[0].scaling.kind,
              RopeScalingKind::Llama3);
    EXPECT_THAT(message(tiny_llama_gguf().floats("rope_freqs.weight", {3}, 1)), HasSubstr("3 rope factors for 2"));
    GgufWriter phi = tiny("phi3");
    phi.floats("rope_factors_short.weight", {2}).floats("rope_factors_long.weight", {2}, 8);
    phi.set("phi3.rope.scaling.attn_factor", 1.25F).set<std::uint32_t>("phi3.rope.scaling.original_context_length", 16);
    const RopeScaling scaling = config_of(phi).ropes[0].scaling;
    EXPECT_EQ(scaling.kind, RopeScalingKind::LongRope);
    EXPECT_THAT(scaling.short_factors, ElementsAre(0.5, 1.5));
    EXPECT_THAT(scaling.long_factors, ElementsAre(8.5, 9.5));
    EXPECT_EQ(scaling.attention_factor, 1.25);
    EXPECT_EQ(scaling.original_context, 16);
    EXPECT_THAT(message(phi.erase_tensor("rope_factors_long.weight")), HasSubstr("longrope"));
}

TEST(GgufConfig, ReadsSlidingWindows) {
    GgufWriter writer = tiny("phi3");
    EXPECT_THAT(layer_windows(config_of(writer.set<std::uint32_t>("phi3.attention.sliding_window", 0))), IsEmpty());
    EXPECT_THAT(layer_windows(config_of(writer.set<std::uint32_t>("phi3.attention.sliding_window", 6))),
                ElementsAre(6, 6));
    EXPECT_THAT(layer_windows(config_of(writer.set<std::uint32_t>("phi3.attention.sliding_window", 32))),
                ElementsAre(32, 32))
        << "as long as the file's context: a longer one may be served";
    EXPECT_THAT(layer_windows(config_of(tiny("qwen2").set<std::uint32_t>("qwen2.attention.sliding_window", 32))),
                IsEmpty());
    for (const char* family : {"gemma2", "gemma3"}) {
        const std::string key = std::string(family) + ".attention.sliding_window";
        EXPECT_THAT(message(tiny(family).set<std::uint32_t>(key, 0)), HasSubstr(key + " is 0"));
    }
    EXPECT_THAT(message(tiny("phi3").set<std::int32_t>("phi3.attention.sliding_window", -6)),
                HasSubstr("phi3.attention.sliding_window is -6"));
    writer.set<std::uint32_t>("phi3.attention.sliding_window", 6);
    writer.set<std::uint32_t>("phi3.attention.sliding_window_pattern", 2);
    EXPECT_THAT(layer_windows(config_of(writer)), ElementsAre(6, 0));
    writer.set("phi3.attention.sliding_window_pattern", gguf_array({gguf_scalar(false), gguf_scalar(true)}));
    EXPECT_THAT(layer_windows(config_of(writer)), ElementsAre(0, 6));
    writer.set("phi3.attention.sliding_window_pattern", gguf_array({gguf_scalar(false)}));
    EXPECT_THAT(message(writer), HasSubstr("a flag for each of 2 layers"));
    EXPECT_THAT(message(tiny("qwen2").set<std::uint32_t>("qwen2.attention.sliding_window", 6)),
                HasSubstr("without a pattern of layers"));
}

TEST(GgufVocabulary, ReadsAndChecksItsArrays) {
    GgufWriter writer = tiny_llama_gguf();
    writer.set<std::uint32_t>("tokenizer.ggml.eot_token_id", 7)
        .set<std::uint32_t>("tokenizer.ggml.padding_token_id", UINT32_MAX);
    writer.set("tokenizer.ggml.add_bos_token", true).set("tokenizer.ggml.pre", "default");
    writer.set("tokenizer.ggml.merges", gguf_array({gguf_string("a b")}));
    writer.set("tokenizer.chat_template", "{{ messages }}").set("general.sampling.temp", 0.5F);
    const auto model = open(writer);
    ASSERT_TRUE(model->tokenizer_source().gguf.has_value());
    const GgufVocabulary& vocabulary = *model->tokenizer_source().gguf;
    EXPECT_EQ(vocabulary.model, "llama");
    EXPECT_EQ(vocabulary.pre_tokenizer, "default");
    EXPECT_EQ(vocabulary.tokens.size(), 10U);
    EXPECT_EQ(vocabulary.tokens[9], "t9");
    EXPECT_EQ(vocabulary.scores[9], -9.0F);
    EXPECT_EQ(vocabulary.types[2], 3);
    EXPECT_THAT(vocabulary.merges, ElementsAre("a b"));
    EXPECT_EQ(vocabulary.bos_id, 1);
    EXPECT_EQ(vocabulary.eos_id, 2);
    EXPECT_EQ(vocabulary.pad_id, std::nullopt);
    EXPECT_EQ(vocabulary.add_bos, true);
    EXPECT_EQ(vocabulary.add_eos, std::nullopt);
    EXPECT_THAT(model->generation_defaults().end_tokens, ElementsAre(2, 7));
    EXPECT_EQ(model->generation_defaults().temperature, 0.5);
    EXPECT_EQ(model->chat_template(), "{{ messages }}");

    EXPECT_THAT(message(tiny_llama_gguf().set("tokenizer.ggml.scores", gguf_array({gguf_scalar(1.0F)}))),
                HasSubstr("1 elements for 10 tokens"));
    EXPECT_THAT(message(tiny_llama_gguf().set("tokenizer.ggml.tokens", gguf_array({}))),
                HasSubstr("not an array of texts"));
    EXPECT_THAT(message(tiny_llama_gguf().set("tokenizer.ggml.tokens", gguf_array({}, 8))), HasSubstr("is empty"));
    EXPECT_THAT(message(tiny_llama_gguf().erase("tokenizer.ggml.tokens")), HasSubstr("no vocabulary"));
    EXPECT_THAT(message(tiny_llama_gguf().floats("token_embd.weight", {9, 8})),
                HasSubstr("10 tokens in the vocabulary, 9 rows"));
}

TEST(GgufVocabulary, AModelMayHaveNone) {
    GgufWriter writer = tiny_llama_gguf();
    EXPECT_FALSE(open(writer.erase("tokenizer.ggml.model"))->tokenizer_source().gguf.has_value());
    const TempFolder folder;
    const auto path = folder.write("none.gguf", writer.bytes());
    EXPECT_THAT(error_text([&] { static_cast<void>(read_gguf_vocabulary(path)); }), HasSubstr("no tokenizer"));
}

TEST(GgufVocabulary, ReadsPublishedVocabularies) {
    const std::filesystem::path folder = SLIPSTREAM_SOURCE_DIR "/../shared/data/tokenizers";
    if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not here";
    const GgufVocabulary llama = read_gguf_vocabulary(folder / "ggml-vocab-llama-spm.gguf");
    EXPECT_EQ(llama.model, "llama");
    EXPECT_EQ(llama.tokens.size(), 32000U);
    EXPECT_EQ(llama.tokens[29871], "\xE2\x96\x81");
    EXPECT_EQ(llama.types[2], 3);
    EXPECT_EQ(llama.bos_id, 1);
    const GgufVocabulary gpt2 = read_gguf_vocabulary(folder / "ggml-vocab-gpt-2.gguf");
    EXPECT_EQ(gpt2.model, "gpt2");
    EXPECT_EQ(gpt2.merges.size(), 50000U);
    const GgufVocabulary phi3 = read_gguf_vocabulary(folder / "ggml-vocab-phi-3.gguf");
    EXPECT_EQ(phi3.tokens.size(), 32064U);
    EXPECT_EQ(phi3.eos_id, 32000);
    EXPECT_THAT(error_text([&] { static_cast<void>(ModelFiles::open(folder / "ggml-vocab-phi-3.gguf")); }),
                HasSubstr("holds no tensors"));
}

}  // namespace
}  // namespace slipstream
