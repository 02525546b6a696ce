// Against another engine's logits on the same files (origin and settings: the README beside the data), and against the
// text that two other engines agree on. The data is not part of the project: where it is absent these tests skip.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "runtime/formats/model_files.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/loop/text_generation.h"
#include "runtime/pass/forward.h"
#include "tests/support/device_self_check.h"
#include "tests/support/scripted_proposer.h"

namespace slipstream {
namespace {

const std::filesystem::path kShared = std::filesystem::path(SLIPSTREAM_SOURCE_DIR) / ".." / "shared";

struct Reference {
    const char* name;
    const char* model;   // below kShared
    const char* tokens;  // below kShared/data/reference
    const char* logits;
    DType kv_dtype;
    double bound;  // NMSE: engines differ by how they round activations; a wrong scale shows as 1e-3 and more
};

void PrintTo(const Reference& which, std::ostream* out) {
    *out << which.name;
}

const Reference kReferences[] = {
    {"stories260K_f32", "data/stories260K/stories260K-f32.gguf", "stories260K.tokens.txt", "stories260K-f32.logits.f32",
     DType::F32, 1e-6},
    {"stories260K_hf", "data/stories260K/hf", "stories260K.tokens.txt", "stories260K-f32.logits.f32", DType::F32, 1e-6},
    {"bf16", "models/fairy/gguf/fairy-target-bf16.gguf", "fairy.tokens.txt", "fairy-target-bf16.logits.f32", DType::F16,
     2e-5},
    {"bf16_hf", "models/fairy/target", "fairy.tokens.txt", "fairy-target-bf16.logits.f32", DType::F16, 2e-5},
    {"f16", "models/fairy/gguf/fairy-target-f16.gguf", "fairy.tokens.txt", "fairy-target-f16.logits.f32", DType::F16,
     2e-5},
    {"q8_0", "models/fairy/gguf/fairy-target-q8_0.gguf", "fairy.tokens.txt", "fairy-target-q8_0.logits.f32", DType::F16,
     3e-4},
    {"q6_k", "models/fairy/gguf/fairy-target-q6_k.gguf", "fairy.tokens.txt", "fairy-target-q6_k.logits.f32", DType::F16,
     3e-4},
    {"q5_k_m", "models/fairy/gguf/fairy-target-q5_k_m.gguf", "fairy.tokens.txt", "fairy-target-q5_k_m.logits.f32",
     DType::F16, 3e-4},
    {"q5_1", "models/fairy/gguf/fairy-target-q5_1.gguf", "fairy.tokens.txt", "fairy-target-q5_1.logits.f32", DType::F16,
     3e-4},
    {"q5_0", "models/fairy/gguf/fairy-target-q5_0.gguf", "fairy.tokens.txt", "fairy-target-q5_0.logits.f32", DType::F16,
     3e-4},
    {"q4_k_m", "models/fairy/gguf/fairy-target-q4_k_m.gguf", "fairy.tokens.txt", "fairy-target-q4_k_m.logits.f32",
     DType::F16, 3e-4},
    {"q4_1", "models/fairy/gguf/fairy-target-q4_1.gguf", "fairy.tokens.txt", "fairy-target-q4_1.logits.f32", DType::F16,
     3e-4},
    {"q4_0", "models/fairy/gguf/fairy-target-q4_0.gguf", "fairy.tokens.txt", "fairy-target-q4_0.logits.f32", DType::F16,
     3e-4},
    {"q3_k_m", "models/fairy/gguf/fairy-target-q3_k_m.gguf", "fairy.tokens.txt", "fairy-target-q3_k_m.logits.f32",
     DType::F16, 3e-4},
};

class ReferenceLogits : public testing::TestWithParam<Reference> {};

TEST_P(ReferenceLogits, AgreeWithinTheRoundingOfActivations) {
    const Reference& which = GetParam();
    const std::filesystem::path data = kShared / "data" / "reference";
    if (!std::filesystem::exists(data / which.logits) || !std::filesystem::exists(kShared / which.model))
        GTEST_SKIP() << "no " << (data / which.logits).string();
    std::ifstream token_file(data / which.tokens);
    const std::vector<TokenId> tokens{std::istream_iterator<TokenId>(token_file), {}};
    ASSERT_GT(tokens.size(), 50U);
    const auto files = ModelFiles::open(kShared / which.model);
    CpuDevice device({.n_threads = 2});
    const Model model(*files, device, {.kv_dtype = which.kv_dtype});
    const auto n = static_cast<std::int64_t>(tokens.size());
    std::vector<float> expected(static_cast<std::size_t>(n * model.config().vocab));
    ASSERT_EQ(std::filesystem::file_size(data / which.logits), expected.size() * sizeof(float));
    std::ifstream(data / which.logits, std::ios::binary)
        .read(reinterpret_cast<char*>(expected.data()), static_cast<std::streamsize>(expected.size() * sizeof(float)));

    KvCache cache(device, model.kv_layouts(), n, 1);
    Forward forward(model, {.max_tokens = 1, .max_logit_rows = 1});
    double error = 0.0, power = 0.0;
    for (std::int64_t t = 0; t < n; ++t) {
        const NodeId node = cache.add_node(kCommittedTip);
        const std::int32_t row = 0;
        const ConstTensorView logits = forward.run(cache, {&tokens[t], 1}, {&node, 1}, {&row, 1});
        cache.commit(forward.exec(), {&node, 1});
        for (std::int64_t i = 0; i < logits.cols(); ++i) {
            const double truth = expected[t * logits.cols() + i];
            const double difference = float_row(logits, 0)[i] - truth;
            error += difference * difference;
            power += truth * truth;
        }
    }
    RecordProperty("nmse", std::to_string(error / power));
    std::printf("%s: NMSE %.2e\n", which.name, error / power);
    EXPECT_LT(error / power, which.bound);
}

INSTANTIATE_TEST_SUITE_P(Files, ReferenceLogits, testing::ValuesIn(kReferences),
                         [](const auto& which) { return std::string(which.param.name); });

class Stories260K : public testing::TestWithParam<const char*> {};

TEST_P(Stories260K, SaysTheExpectedStoryGreedily) {
    const std::filesystem::path folder = kShared / "data" / "stories260K";
    if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder.string();
    std::ifstream story_file(folder / "expected_greedy.txt", std::ios::binary);
    const std::string story{std::istreambuf_iterator<char>(story_file), {}};
    const auto files = ModelFiles::open(folder / GetParam());
    const auto tokenizer = make_tokenizer(files->tokenizer_source());
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    KvCache cache(device, model.kv_layouts(), model.context_tokens(), scratch_nodes_for(1));
    Forward forward(model, forward_limits_for(1));
    Sampler sampler({.temperature = 0.0}, model.config().vocab);
    ExactVerifier verifier(sampler);
    NoProposer none;
    const LoopLimits limits{.budget = 1, .end_tokens = files->generation_defaults().end_tokens};
    RankTarget target(forward, cache);
    Sequence sequence(target);
    GenerationLoop loop(sequence, verifier, none, limits);
    loop.begin({tokenizer->bos_id().value()});
    std::string text;
    const auto result = generate_text(loop, *tokenizer, StreamingDetokenizer::Start::OfText, limits,
                                      {.max_tokens = 200}, {.on_text = [&](std::string_view part) { text += part; }});
    EXPECT_EQ(text, story);
    EXPECT_EQ(result.text_bytes, static_cast<std::int64_t>(story.size()));
}

TEST_P(Stories260K, SaysTheSameWithGuessesUnderTheSelfCheck) {
    const std::filesystem::path folder = kShared / "data" / "stories260K";
    if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder.string();
    const auto files = ModelFiles::open(folder / GetParam());
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    constexpr std::int64_t n_tokens = 300;
    const auto generate = [&](Proposer& proposer, std::int64_t budget) {
        KvCache cache(device, model.kv_layouts(), model.context_tokens(), SelfCheck::scratch_nodes_for(budget));
        Forward forward(model, forward_limits_for(budget));
        Sampler sampler({.temperature = 0.8, .top_p = 0.9, .repeat_penalty = 1.1, .seed = 2}, model.config().vocab);
        ExactVerifier verifier(sampler);
        RankTarget target(forward, cache);
        Sequence sequence(target);
        GenerationLoop loop(sequence, verifier, proposer, {.budget = budget});
        DeviceSelfCheck self_check(model, cache);
        loop.check_with(self_check);
        loop.begin({1});
        while (std::ssize(loop.text()) <= n_tokens)
            if (loop.step(n_tokens + 1 - std::ssize(loop.text())).empty()) break;
        EXPECT_EQ(self_check.figures().tokens, n_tokens);
        return loop.text();
    };
    NoProposer none;
    const std::vector<TokenId> plain = generate(none, 1);
    for (const std::int64_t budget : {3, 40}) {
        ScriptedProposer proposer(plain, 0.8, 4, static_cast<std::uint32_t>(model.config().vocab));
        EXPECT_EQ(generate(proposer, budget), plain) << "budget " << budget;
        EXPECT_LT(proposer.n_proposed, 2 * n_tokens / 3);
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, Stories260K, testing::Values("hf", "stories260K-f32.gguf"), [](const auto& which) {
    return which.index == 0 ? std::string("HuggingFace") : std::string("Gguf");
});

}  // namespace
}  // namespace slipstream
