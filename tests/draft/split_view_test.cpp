// Guesses over views of a target on several devices: those of one device, pass by pass, and the text of none.
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft/drafter.h"
#include "kernels/cpu_faults.h"
#include "runtime/formats/model_files.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/ranks/rank_target.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tests/support/viewed_split.h"

namespace slipstream::draft {
namespace {

constexpr std::int64_t kContext = 768;
constexpr std::int64_t kBudget = 16;
constexpr std::int64_t kNewTokens = 60;
const ViewOptions kSmall{.budget_tokens = 96, .recent_tokens = 32, .rebuild_tokens = 24, .growth_tokens = 64};

const ViewOptions kPaged{
    .type = ViewType::Q4, .budget_tokens = 256, .recent_tokens = 32, .rebuild_tokens = 24, .growth_tokens = 64};

class SplitView : public testing::Test {
protected:
    struct Told {
        std::vector<TokenId> text;
        std::int64_t n_passes = 0;
        std::int64_t offered = 0, accepted = 0, guess_passes = 0;
        friend bool operator==(const Told&, const Told&) = default;
    };

    SplitView() {
        const auto tokenizer = make_tokenizer(files_->tokenizer_source());
        prompt_.push_back(tokenizer->bos_id().value());
        for (int i = 0; i < 5; ++i)
            for (const char* text : {"Once upon a time there lived a poor miller who had a beautiful daughter. ",
                                     "The king had a garden, and in it stood a tree that bore golden apples. ",
                                     "\"Who are you?\" said the wolf, and he sat down by the door to wait. "})
                for (const TokenId token : tokenizer->encode(text, SpecialTokens::AsText))
                    if (std::ssize(prompt_) < 560) prompt_.push_back(token);
    }
    [[nodiscard]] ViewedSplitOptions on(std::vector<std::int64_t> parts, KvStreams streams,
                                        SplitKind kind = SplitKind::Layers) const {
        return {.parts = std::move(parts),
                .view = view_,
                .streams = streams,
                .kind = kind,
                .context_tokens = kContext,
                .forward = forward_limits_for(kBudget),
                .scratch_nodes = scratch_nodes_for(kBudget),
                .view_nodes = 64,
                .ring_bytes = std::size_t{4} << 20};
    }
    [[nodiscard]] std::vector<std::int64_t> halves() const {
        const std::int64_t n = files_->config().n_layers();
        return {n - n / 2, n / 2};
    }
    [[nodiscard]] std::unique_ptr<Drafter> drafter(ViewPasses& passes, const SamplerOptions& sampling,
                                                   std::vector<SourceKind> sources = {SourceKind::Retrieval}) const {
        DraftOptions options;
        options.sources = std::move(sources);
        options.shape = TreeShape::Chain;
        options.max_budget = kBudget;
        options.adapt_budget = false;
        options.gamma = 6;
        DraftContext for_target;
        for_target.vocab = files_->config().vocab;
        for_target.sampling = sampling;
        for_target.files = files_.get();
        auto made = make_drafter(options, for_target);
        made->attach_view(passes, {});
        return made;
    }
    Told tell(Target& target, Proposer& proposer, const SamplerOptions& sampling) const {
        Told told;
        Sampler sampler(sampling, files_->config().vocab);
        ExactVerifier walk(sampler);
        Sequence sequence(target);
        GenerationLoop loop(sequence, walk, proposer, {kBudget, {}});
        loop.begin(prompt_);
        const std::size_t end = prompt_.size() + kNewTokens;
        while (loop.text().size() < end) {
            EXPECT_FALSE(loop.step(static_cast<std::int64_t>(end - loop.text().size())).empty());
            ++told.n_passes;
        }
        told.text = loop.text();
        return told;
    }
    Told generate_with_view(Target& target, ViewPasses& passes, const SamplerOptions& sampling) const {
        target.truncate(0);
        const auto proposer = drafter(passes, sampling);
        Told told = tell(target, *proposer, sampling);
        const SourceFigures figures = proposer->figures().front();
        told.offered = figures.offered;
        told.accepted = figures.accepted;
        told.guess_passes = figures.passes.value();
        return told;
    }
    Told on_one_device(KvStreams streams, const SamplerOptions& sampling) const {
        CpuDevice device(CpuDeviceOptions{.n_threads = 1});
        PinnedArena arena{{.limit_bytes = std::size_t{256} << 20, .page_lock = PageLock::Pageable}};
        const Model model(*files_, device, {.context_tokens = kContext});
        std::vector<std::int64_t> resident;
        if (streams != KvStreams::Nowhere) resident.resize(static_cast<std::size_t>(model.config().n_layers()), 0);
        KvCache cache(device, model.kv_layouts(), kContext, scratch_nodes_for(kBudget),
                      {.resident_chunks = resident, .arena = &arena});
        KvView view(device, model.kv_layouts(), view_room(view_, model.config(), 64));
        ViewBuilder builder(cache, view, model, view_);
        std::unique_ptr<PassStream> pass;
        if (cache.streams())
            pass = std::make_unique<PassStream>(std::vector{PassReads{&model, &cache}}, arena, std::size_t{4} << 20);
        Forward forward(model, forward_limits_for(kBudget), pass.get());
        RankTarget target(forward, cache);
        target.build_views_with({&builder});
        ViewPasses passes(forward, view);
        return generate_with_view(target, passes, sampling);
    }

    void expect_faults_cost_no_token(SplitKind kind, const std::vector<std::int64_t>& parts);

    ViewOptions view_ = kSmall;

    std::unique_ptr<ModelFiles> files_ = ModelFiles::open(SLIPSTREAM_SOURCE_DIR "/tools/demo_model/target");
    std::vector<TokenId> prompt_;
};

TEST_F(SplitView, GuessesAreThoseOfOneDevice) {
    for (const double temperature : {0.0, 0.8}) {
        const SamplerOptions sampling{.temperature = temperature, .top_k = 40, .seed = 3};
        for (const auto& [view, streams] : {std::pair{&kSmall, KvStreams::Nowhere},
                                            {&kSmall, KvStreams::Everywhere},
                                            {&kPaged, KvStreams::Nowhere},
                                            {&kPaged, KvStreams::Everywhere}}) {
            view_ = *view;
            const Told one = on_one_device(streams, sampling);
            EXPECT_GT(one.accepted, 20);
            const std::int64_t n = files_->config().n_layers();
            for (const std::vector<std::int64_t>& split : {halves(), {1, n - 2, 1}}) {
                ViewedSplit several(*files_, on(split, streams));
                NoProposer nothing;
                EXPECT_EQ(tell(*several.target, nothing, sampling).text, one.text);
                const Told told = generate_with_view(*several.target, *several.over_view, sampling);
                EXPECT_EQ(told, one) << temperature << testing::PrintToString(split) << ": " << told.n_passes
                                     << " passes, of one device " << one.n_passes;
            }
        }
    }
}

// Whatever fails on whichever device, in guesses as well as in passes: one line with its name, and the text goes on.
void SplitView::expect_faults_cost_no_token(SplitKind kind, const std::vector<std::int64_t>& parts) {
    const SamplerOptions sampling{.temperature = 0.8, .top_k = 40, .seed = 3};
    ViewedSplit plain(*files_, on(parts, KvStreams::Nowhere, kind));
    NoProposer nothing;
    const std::vector<TokenId> expected = tell(*plain.target, nothing, sampling).text;
    std::mt19937 random(23);
    int n_failures = 0;
    for (int round = 0; round < 24; ++round) {
        CpuFaults faults[2];
        view_ = round % 4 < 2 ? kSmall : kPaged;
        ViewedSplitOptions options = on(parts, round % 2 == 0 ? KvStreams::Nowhere : KvStreams::Everywhere, kind);
        for (std::size_t i = 0; i < 2; ++i)
            options.devices.push_back({.name = "device " + std::to_string(i + 1), .faults = &faults[i]});
        ViewedSplit several(*files_, options);
        const auto proposer = drafter(*several.over_view, sampling, {SourceKind::Retrieval});
        Sampler sampler(sampling, files_->config().vocab);
        ExactVerifier walk(sampler);
        Sequence sequence(*several.target);
        GenerationLoop loop(sequence, walk, *proposer, {kBudget, {}});
        loop.begin(prompt_);
        while (std::ssize(loop.text()) < std::ssize(prompt_) + 3) static_cast<void>(loop.step(1));
        const std::size_t rank = random() % 2;
        auto& countdown = round % 3 == 0 ? faults[rank].rows_until_failure : faults[rank].ops_until_failure;
        countdown = 1 + static_cast<std::int64_t>(random() % (round % 3 == 0 ? 100 : 1000));
        const std::size_t end = prompt_.size() + kNewTokens;
        while (loop.text().size() < end) {
            try {
                ASSERT_FALSE(loop.step(static_cast<std::int64_t>(end - loop.text().size())).empty());
            } catch (const RankFailed& failure) {
                ++n_failures;
                EXPECT_THAT(failure.what(), testing::StartsWith("device " + std::to_string(rank + 1) + ", "));
            }
        }
        ASSERT_EQ(loop.text(), expected) << round;
    }
    EXPECT_GT(n_failures, 12);
}

TEST_F(SplitView, AFaultOfADeviceCostsAPassAndNoToken) {
    expect_faults_cost_no_token(SplitKind::Layers, halves());
}

TEST_F(SplitView, AFaultOfADeviceOfATensorSplitCostsAPassAndNoToken) {
    expect_faults_cost_no_token(SplitKind::Tensor, {1, 1});
}

TEST_F(SplitView, GuessesOverHeadsLeaveTheTextOfTheirSplit) {
    for (const double temperature : {0.0, 0.8}) {
        const SamplerOptions sampling{.temperature = temperature, .top_k = 40, .seed = 3};
        std::vector<TokenId> text;
        for (const auto& [view, streams] : {std::pair{&kSmall, KvStreams::Nowhere},
                                            {&kPaged, KvStreams::Nowhere},
                                            {&kSmall, KvStreams::BehindTheFirst},
                                            {&kPaged, KvStreams::BehindTheFirst},
                                            {&kSmall, KvStreams::Everywhere},
                                            {&kPaged, KvStreams::Everywhere}}) {
            view_ = *view;
            ViewedSplit several(*files_, on({1, 1}, streams, SplitKind::Tensor));
            NoProposer nothing;
            const Told plain = tell(*several.target, nothing, sampling);
            const Told told = generate_with_view(*several.target, *several.over_view, sampling);
            EXPECT_EQ(told.text, plain.text);
            EXPECT_GT(told.accepted, 20);
            if (text.empty()) text = plain.text;
            EXPECT_EQ(plain.text, text);
        }
    }
}

}  // namespace
}  // namespace slipstream::draft
