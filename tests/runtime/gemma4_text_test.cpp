// Gemma 4 against transformers beyond single logits: greedy texts, folders of models that do more than text, and the
// logits of every placement.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/cpu_device.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/formats/ignored_tensors.h"
#include "runtime/formats/model_files.h"
#include "runtime/model/model.h"
#include "runtime/pass/forward.h"
#include "tests/support/golden_model.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

/// Returns the `n` tokens that follow `prompt` by the largest logit, a token a pass.
std::vector<TokenId> greedy_text(const ModelFiles& files, const std::vector<TokenId>& prompt, std::size_t n) {
    CpuDevice device({.n_threads = 1});
    const auto context = static_cast<std::int64_t>(prompt.size() + n);
    const Model model(files, device, {.context_tokens = context, .kv_dtype = DType::F32, .on_progress = {}});
    Forward forward(model, {.max_tokens = 1, .max_logit_rows = 1});
    KvCache cache(device, model.kv_layouts(), context, 1);
    std::vector<TokenId> text = prompt;
    for (std::size_t i = 0; i + 1 < prompt.size() + n; ++i) {
        const std::vector<NodeId> nodes{cache.add_node(kCommittedTip)};
        const std::int32_t row = 0;
        const ConstTensorView logits = forward.run(cache, std::span(text).subspan(i, 1), nodes, {&row, 1});
        cache.commit(forward.exec(), nodes);
        if (i + 1 < prompt.size()) continue;
        const float* first = float_row(logits, 0);
        text.push_back(static_cast<TokenId>(std::max_element(first, first + logits.cols()) - first));
    }
    return {text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end()};
}

class Gemma4Text : public testing::TestWithParam<std::string> {};

TEST_P(Gemma4Text, GreedyTextIsThatOfTransformers) {
    const GoldenModel golden = load_golden_model(GetParam());
    ASSERT_EQ(golden.greedy.size(), 64U);
    const TempFolder folder;
    write_hugging_face(golden, folder.path());
    EXPECT_EQ(greedy_text(*ModelFiles::open(folder.path()), golden.tokens, 64), golden.greedy);
    const TempFolder other;
    write_golden_gguf(golden, other.path() / "model.gguf");
    EXPECT_EQ(greedy_text(*ModelFiles::open(other.path() / "model.gguf"), golden.tokens, 64), golden.greedy);
}

INSTANTIATE_TEST_SUITE_P(Golden, Gemma4Text, testing::Values("gemma4", "gemma4_values", "gemma4_unified"),
                         [](const testing::TestParamInfo<std::string>& parameter) { return parameter.param; });

/// Writes `golden` as a folder of a model that also sees and hears: the text model's fields are in "text_config".
void write_larger_model(const GoldenModel& golden, const std::filesystem::path& folder) {
    const auto fields = nlohmann::json::parse(golden.config_json);
    const bool unified = fields["model_type"] == "gemma4_unified_text";
    const nlohmann::json config = {
        {"architectures", {unified ? "Gemma4UnifiedForConditionalGeneration" : "Gemma4ForConditionalGeneration"}},
        {"model_type", unified ? "gemma4_unified" : "gemma4"},
        {"text_config", fields},
        {"vision_config", {{"hidden_size", 8}}},
        {"audio_config", nullptr},
        {"eos_token_id", {1, 2}}};
    SafetensorsWriter writer;
    const auto put = [&](const std::string& name, const std::vector<std::int64_t>& shape, std::vector<float> values) {
        writer.tensor(name, "F32", shape,
                      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
    };
    put("model.vision_tower.patch_embedder.input_proj.weight", {2, 2}, {1, 2, 3, 4});
    for (const GoldenTensor& tensor : golden.tensors)
        put("model.language_model." + tensor.name.substr(6), tensor.shape, golden_values(tensor));
    put("model.vision_tower.std_bias", {2}, {1, 2});
    put("model.embed_vision.embedding_projection.weight", {2, 2}, {1, 2, 3, 4});
    std::ofstream(folder / "config.json") << config.dump();
    std::ofstream(folder / "model.safetensors", std::ios::binary) << writer.bytes();
}

TEST(Gemma4Folder, TheTextOfALargerModelIsServedAndTheRestNamed) {
    for (const char* name : {"gemma4", "gemma4_unified"}) {
        SCOPED_TRACE(name);
        const GoldenModel golden = load_golden_model(name);
        const TempFolder folder;
        write_larger_model(golden, folder.path());
        const auto files = ModelFiles::open(folder.path());
        EXPECT_EQ(greedy_text(*files, golden.tokens, 64), golden.greedy);
        EXPECT_EQ(describe_ignored_tensors(*files), "vision_tower (2 tensors), embed_vision (1 tensor)");
        EXPECT_THAT(files->generation_defaults().end_tokens, testing::ElementsAre(1, 2));
        // The text model alone uses all of its tensors, also in GGUF, where a tensor holds the divisors of RoPE.
        const TempFolder alone;
        write_hugging_face(golden, alone.path());
        EXPECT_EQ(describe_ignored_tensors(*ModelFiles::open(alone.path())), "");
        write_golden_gguf(golden, alone.path() / "model.gguf");
        EXPECT_EQ(describe_ignored_tensors(*ModelFiles::open(alone.path() / "model.gguf")), "");
    }
}

}  // namespace
}  // namespace slipstream
