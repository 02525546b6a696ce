// The engine as a library: from a path to a text, without options, terminal and command line.
#include "tools/engine/engine.h"

#include <atomic>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/base/interrupted.h"
#include "runtime/loop/text_generation.h"
#include "tests/support/golden_head.h"
#include "tests/support/temp_folder.h"

namespace slipstream::tools {
namespace {

using draft::SourceKind;

constexpr std::size_t kMiB = std::size_t{1} << 20;

struct Generated {
    std::string text;
    bool streams = false;
    std::int64_t passes = 0;
};

class EngineGeneration : public testing::Test {
protected:
    // The callbacks are gone when the text is made.
    [[nodiscard]] static TextGenerator make(const GeneratorOptions& options, OpenedModel opened,
                                            const Tokenizer& tokenizer, const std::atomic<bool>* cancel,
                                            const SamplerOptions& sampling = {.temperature = 0.0}) {
        const EngineCallbacks callbacks{.cancel = cancel};
        std::vector<TokenId> end_tokens = all_end_tokens(opened.files().generation_defaults(), tokenizer);
        return TextGenerator(options, std::move(opened), sampling, std::move(end_tokens), callbacks);
    }

    [[nodiscard]] Generated generate() const {
        OpenedModel opened(SLIPSTREAM_SOURCE_DIR "/tools/demo_model/target");
        const auto tokenizer = make_tokenizer(opened.files().tokenizer_source());
        TextGenerator generator = make(options_, std::move(opened), *tokenizer, &cancel_);
        const EncodedPrompt prompt = encode_raw("The wolf said", *tokenizer, SpecialTokens::AsText, nullptr);
        EXPECT_EQ(generator.start(prompt.tokens), 0);
        Generated generated{.text = "", .streams = generator.model().streams()};
        TextGenerationOptions text;
        text.max_tokens = 24;
        generated.passes = generator
                               .generate(*tokenizer, prompt.start, text,
                                         {.on_text = [&](std::string_view part) { generated.text += part; }})
                               .passes;
        return generated;
    }

    /// A text of `generator`, from the beginning.
    [[nodiscard]] static std::string text_of(TextGenerator& generator, const Tokenizer& tokenizer) {
        const EncodedPrompt prompt = encode_raw("The wolf said", tokenizer, SpecialTokens::AsText, nullptr);
        generator.sequence().keep_computed(0);
        EXPECT_EQ(generator.start(prompt.tokens), 0);
        std::string text;
        TextGenerationOptions options;
        options.max_tokens = 24;
        static_cast<void>(generator.generate(tokenizer, prompt.start, options,
                                             {.on_text = [&](std::string_view part) { text += part; }}));
        return text;
    }

    void draft_with(std::vector<SourceKind> sources) {
        options_.draft.list = "test";
        options_.draft.options.sources = std::move(sources);
        options_.draft.options.max_budget = 16;
        options_.draft.find_model = [](const std::filesystem::path&) {
            return SLIPSTREAM_SOURCE_DIR "/tools/demo_model/draft";
        };
    }

    EngineGeneration() {
        options_.compute.devices = choose_devices("cpu");
        options_.compute.context_tokens = 512;
        options_.compute.offload.host_memory = 1024 * kMiB;
    }

    GeneratorOptions options_;
    std::atomic<bool> cancel_ = false;
};

TEST_F(EngineGeneration, IsTheSameWhereverTheModelIsAndWhoeverDrafts) {
    const Generated plain = generate();
    EXPECT_FALSE(plain.text.empty());
    EXPECT_FALSE(plain.streams);
    draft_with({SourceKind::Context, SourceKind::Model});
    const Generated drafted = generate();
    EXPECT_EQ(drafted.text, plain.text);
    EXPECT_LT(drafted.passes, plain.passes);
    options_.compute.offload.devices = {{.memory_bytes = 22 * kMiB}};
    const Generated streamed = generate();
    EXPECT_TRUE(streamed.streams);
    EXPECT_EQ(streamed.text, plain.text);
    options_.compute.offload.devices.clear();
    options_.compute.devices = choose_devices("cpu,cpu");
    EXPECT_EQ(generate().text, plain.text);
}

// From files to a text with the MTP head that they have: without a limit, on two devices, in a limited memory.
TEST_F(EngineGeneration, TheHeadOfTheTargetDrafts) {
    const GoldenHead golden = load_golden_head("qwen35");
    const TempFolder folder;
    write_hugging_face(golden.model, folder.path());
    // Any tokenizer will do for ids.
    const auto tokenizer =
        make_tokenizer(ModelFiles::open(SLIPSTREAM_SOURCE_DIR "/tools/demo_model/target")->tokenizer_source());
    std::int64_t offered = 0;
    const auto text_with = [&] {
        OpenedModel opened(folder.path());
        TextGenerator generator(options_, std::move(opened), {.temperature = 0.0}, {}, {});
        std::string text;
        EXPECT_EQ(generator.start({golden.model.tokens.begin(), golden.model.tokens.begin() + 9}), 0);
        TextGenerationOptions options;
        options.max_tokens = 40;
        static_cast<void>(generator.generate(*tokenizer, StreamingDetokenizer::Start::Continued, options,
                                             {.on_text = [&](std::string_view part) { text += part; }}));
        offered = 0;
        const SourceTotals sources = generator.sources();
        for (const SourceTotal& total : sources.totals())
            if (total.name == "mtp") offered += total.offered;
        return text;
    };
    const std::string plain = text_with();
    draft_with({SourceKind::Mtp});
    options_.draft.options.max_budget = 8;
    options_.draft.options.adapt_budget = false;  // asked in each pass, whether it pays or not
    EXPECT_EQ(text_with(), plain);
    EXPECT_GT(offered, 0);
    options_.compute.devices = choose_devices("cpu,cpu");
    EXPECT_EQ(text_with(), plain);
    EXPECT_GT(offered, 0);
    options_.compute.devices = choose_devices("cpu");
    // With a limit the head uses the target's LM head if all of the target stays, as here, else a copy.
    // (What streams beside a head: tests/draft/mtp_source_test.cpp.)
    options_.compute.offload.devices = {{.memory_bytes = 16 * kMiB}};
    EXPECT_EQ(text_with(), plain);
    EXPECT_GT(offered, 0);
}

TEST_F(EngineGeneration, OtherSamplingIsTakenUpInPlace) {
    const std::string folder = SLIPSTREAM_SOURCE_DIR "/tools/demo_model/target";
    const auto tokenizer = make_tokenizer(OpenedModel(folder).files().tokenizer_source());
    const SamplerOptions first{.temperature = 0.9, .seed = 1};
    for (const VerifyRule verify : {VerifyRule::Exact, VerifyRule::Rejection}) {
        draft_with({SourceKind::Model});
        options_.draft.options.adapt_budget = false;  // asked in each pass, however slow the draft model is here
        options_.draft.verify = verify;
        if (verify == VerifyRule::Rejection) options_.draft.options.child_rule = draft::ChildRule::Draw;
        TextGenerator generator = make(options_, OpenedModel(folder), *tokenizer, &cancel_, first);
        const std::string text = text_of(generator, *tokenizer);
        for (const SamplerOptions& sampling : {SamplerOptions{.temperature = 0.9, .seed = 2},
                                               SamplerOptions{.temperature = 1.2, .top_k = 3, .seed = 2}, first}) {
            const std::int64_t offered = generator.sources().totals().front().offered;
            EXPECT_GT(offered, 0);
            generator.resample(sampling);
            EXPECT_EQ(generator.sources().totals().front().offered, offered);
            const std::string next = text_of(generator, *tokenizer);
            EXPECT_EQ(next == text, sampling == first);
            EXPECT_GT(generator.sources().totals().front().offered, offered);
            TextGenerator fresh = make(options_, OpenedModel(folder), *tokenizer, &cancel_, sampling);
            EXPECT_EQ(next, text_of(fresh, *tokenizer));
        }
        EXPECT_THROW(generator.resample({.temperature = -1.0}), RequestError);
        EXPECT_EQ(text_of(generator, *tokenizer), text);
    }
}

// Each accepted draft token of the reported trees counts for its sources as their figures do, and reports change no
// text.
TEST_F(EngineGeneration, PassesAreReportedWithTheSourcesOfTheirTrees) {
    const std::string folder = SLIPSTREAM_SOURCE_DIR "/tools/demo_model/target";
    const auto tokenizer = make_tokenizer(OpenedModel(folder).files().tokenizer_source());
    for (const auto& shape : {std::optional<draft::TreeShape>{}, std::optional(draft::TreeShape::Chain)}) {
        draft_with({SourceKind::Context, SourceKind::Model});
        options_.draft.options.shape = shape;
        TextGenerator silent = make(options_, OpenedModel(folder), *tokenizer, &cancel_);
        TextGenerator generator = make(options_, OpenedModel(folder), *tokenizer, &cancel_);
        std::vector<std::int64_t> accepted(2, 0);
        std::int64_t n_nodes = 0;
        std::int64_t n_unknown = 0;
        std::int64_t n_new = 0;
        generator.report_passes([&](const Observation& pass) {
            ASSERT_EQ(std::ssize(pass.accepted), pass.n_new);
            n_new += pass.n_new;
            EXPECT_EQ(generator.sources_of(kTreeRoot), 0U);
            for (const TreeNode node : pass.tree->draft_nodes()) {
                ++n_nodes;
                if (generator.sources_of(node) == 0) ++n_unknown;
            }
            for (const TreeNode node : pass.accepted.subspan(1))
                for (std::size_t i = 0; i < accepted.size(); ++i)
                    if ((generator.sources_of(node) >> i & 1U) != 0) ++accepted[i];
        });
        EXPECT_EQ(text_of(generator, *tokenizer), text_of(silent, *tokenizer));
        EXPECT_GE(n_new, 24);
        EXPECT_GT(n_nodes, 0);
        EXPECT_EQ(n_unknown, 0);
        const SourceTotals sources = generator.sources();
        ASSERT_EQ(sources.totals().size(), accepted.size());
        for (std::size_t i = 0; i < accepted.size(); ++i) EXPECT_EQ(sources.totals()[i].accepted, accepted[i]);
        EXPECT_GT(accepted[0] + accepted[1], 0);
        EXPECT_TRUE(generator.links().empty());
        generator.report_passes({});
    }
}

TEST_F(EngineGeneration, LoadingIsCancelled) {
    cancel_ = true;
    EXPECT_THROW(static_cast<void>(generate()), Interrupted);
}

}  // namespace
}  // namespace slipstream::tools
