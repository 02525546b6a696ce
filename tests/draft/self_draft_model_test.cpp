// The target over a view of its KV as a source: what it guesses, and that nothing of a view reaches the text.
#include "draft/models/self_draft_model.h"

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "draft/drafter.h"
#include "kernels/cpu_device.h"
#include "runtime/formats/model_files.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/ranks/rank_target.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream::draft {
namespace {

constexpr std::int64_t kContext = 768;
constexpr std::int64_t kBudget = 16;
constexpr std::int64_t kNewTokens = 60;

// The bundled target, a text of a few hundred tokens, and a view of its KV, which may stream.
struct Teller {
    explicit Teller(const ViewOptions& options, std::vector<std::int64_t> resident_chunks = {})
        : files(ModelFiles::open(SLIPSTREAM_SOURCE_DIR "/tools/demo_model/target")),
          model(*files, device, {.context_tokens = kContext}),
          cache(device, model.kv_layouts(), kContext, scratch_nodes_for(kBudget),
                {.resident_chunks = std::move(resident_chunks), .arena = &arena}),
          view(device, model.kv_layouts(), view_room(options, model.config(), 64)),
          builder(cache, view, model, options) {
        if (cache.streams())
            pass = std::make_unique<PassStream>(std::vector{PassReads{&model, &cache}}, arena, std::size_t{4} << 20);
        forward.emplace(model, forward_limits_for(kBudget), pass.get());
        target.emplace(*forward, cache);
        over_view.emplace(*forward, view);
        target->build_views_with({&builder});
        const auto tokenizer = make_tokenizer(files->tokenizer_source());
        prompt.push_back(tokenizer->bos_id().value());
        for (int i = 0; i < 5; ++i)
            for (const char* text : {"Once upon a time there lived a poor miller who had a beautiful daughter. ",
                                     "The king had a garden, and in it stood a tree that bore golden apples. ",
                                     "\"Who are you?\" said the wolf, and he sat down by the door to wait. "})
                for (const TokenId token : tokenizer->encode(text, SpecialTokens::AsText))
                    if (std::ssize(prompt) < 560) prompt.push_back(token);
    }

    [[nodiscard]] std::unique_ptr<Drafter> drafter(std::vector<SourceKind> sources, const SamplerOptions& sampling,
                                                   TreeShape shape = TreeShape::Merged) {
        DraftOptions options;
        options.sources = std::move(sources);
        options.shape = shape;
        options.max_budget = kBudget;
        options.adapt_budget = false;
        options.gamma = 6;
        DraftContext for_target;
        for_target.vocab = model.config().vocab;
        for_target.sampling = sampling;
        for_target.files = files.get();
        auto made = make_drafter(options, for_target);
        made->attach_view(*over_view, {});
        return made;
    }
    std::vector<TokenId> tell(Proposer& proposer, const SamplerOptions& sampling) {
        target->truncate(0);
        Sampler sampler(sampling, model.config().vocab);
        ExactVerifier walk(sampler);
        Sequence sequence(*target);
        GenerationLoop loop(sequence, walk, proposer, {kBudget, {}});
        loop.begin(prompt);
        n_passes = 0;
        const std::size_t end = prompt.size() + kNewTokens;
        while (loop.text().size() < end) {
            EXPECT_FALSE(loop.step(static_cast<std::int64_t>(end - loop.text().size())).empty());
            ++n_passes;
        }
        return loop.text();
    }

    std::unique_ptr<ModelFiles> files;
    PinnedArena arena{{.limit_bytes = std::size_t{256} << 20, .page_lock = PageLock::Pageable}};
    CpuDevice device{CpuDeviceOptions{.n_threads = 1}};
    Model model;
    KvCache cache;
    KvView view;
    ViewBuilder builder;
    std::unique_ptr<PassStream> pass;
    std::optional<Forward> forward;
    std::optional<RankTarget> target;
    std::optional<ViewPasses> over_view;
    std::vector<TokenId> prompt;
    std::int64_t n_passes = 0;
};

const ViewOptions kSmall{.budget_tokens = 96, .recent_tokens = 32, .rebuild_tokens = 24, .growth_tokens = 64};

const ViewOptions kPaged{
    .type = ViewType::Q4, .budget_tokens = 256, .recent_tokens = 32, .rebuild_tokens = 24, .growth_tokens = 64};

std::vector<std::int64_t> none_resident(const Teller& teller) {
    return std::vector<std::int64_t>(static_cast<std::size_t>(teller.model.config().n_layers()), 0);
}

TEST(SelfDraftModel, OverTheWholeTextEveryGuessIsTheTargetsOwn) {
    for (const double temperature : {0.0, 0.8}) {
        const SamplerOptions sampling{.temperature = temperature, .top_k = 40, .seed = 3};
        Teller teller({.budget_tokens = kContext, .rebuild_tokens = 64, .growth_tokens = 128});
        NoProposer nothing;
        const std::vector<TokenId> plain = teller.tell(nothing, sampling);
        const auto drafter = teller.drafter({SourceKind::Retrieval}, sampling, TreeShape::Chain);
        EXPECT_EQ(teller.tell(*drafter, sampling), plain);
        const SourceFigures figures = drafter->figures().front();
        EXPECT_GT(figures.offered, 0);
        EXPECT_EQ(figures.accepted, figures.offered) << temperature;
        // Seven tokens a pass, but for the first, which finds no view.
        EXPECT_LE(teller.n_passes, 2 + (kNewTokens + 6) / 7);
    }
}

TEST(SelfDraftModel, OverPagesOfTheWholeTextNearlyEveryGuessIsTheTargetsOwn) {
    for (const double temperature : {0.0, 0.8}) {
        const SamplerOptions sampling{.temperature = temperature, .top_k = 40, .seed = 3};
        Teller teller({.type = ViewType::Q4, .budget_tokens = kContext, .recent_tokens = 32, .growth_tokens = 128});
        NoProposer nothing;
        const std::vector<TokenId> plain = teller.tell(nothing, sampling);
        const auto drafter = teller.drafter({SourceKind::Retrieval}, sampling, TreeShape::Chain);
        EXPECT_EQ(teller.tell(*drafter, sampling), plain);
        const SourceFigures figures = drafter->figures().front();
        EXPECT_GT(figures.offered, 0);
        EXPECT_GT(10 * figures.accepted, 8 * figures.offered) << temperature;
    }
}

TEST(SelfDraftModel, ASmallViewGuessesMostOfATale) {
    const SamplerOptions sampling{.temperature = 0.0};
    for (const GroupScore score : {GroupScore::Mass, GroupScore::Mean}) {
        ViewOptions options = kSmall;
        options.score = score;
        Teller teller(options);
        NoProposer nothing;
        const std::vector<TokenId> plain = teller.tell(nothing, sampling);
        const auto drafter = teller.drafter({SourceKind::Retrieval}, sampling, TreeShape::Chain);
        EXPECT_EQ(teller.tell(*drafter, sampling), plain);
        EXPECT_LT(2 * teller.n_passes, kNewTokens) << static_cast<int>(score);
        EXPECT_GT(teller.builder.n_built(), 1);
    }
}

// A proposer behind whose back every byte of the view is spoilt while the target verifies.
class Poisoned final : public Proposer {
public:
    Poisoned(Proposer& proposer, KvView& view) : proposer_(proposer), view_(view) {}
    [[nodiscard]] LogitRequest logit_request() const override { return proposer_.logit_request(); }
    void propose(TokenTree& tree, const ProposalLimits& limits) override {
        proposer_.propose(tree, limits);
        for (std::int64_t layer = 0; layer < view_.n_layers(); ++layer) {
            for (std::int64_t chunk = 0; chunk < view_.resident_chunks(layer); ++chunk)
                std::memset(view_.chunks(layer)[chunk], 0xFF, view_.layout(layer).chunk_bytes());
            const std::size_t scratch =
                static_cast<std::size_t>(view_.nodes().max_nodes()) * view_.layout(layer).scratch_row_bytes();
            std::memset(view_.scratch_k(layer), 0xFF, scratch);
            std::memset(view_.scratch_v(layer), 0xFF, scratch);
        }
        if (view_.has_pages()) std::memset(view_.page_pool(), 0xFF, view_.pool_bytes());
    }
    void observe(const Observation& observation) override { proposer_.observe(observation); }

private:
    Proposer& proposer_;
    KvView& view_;
};

// Greedily a model's logits become estimates at the temperature of its rank error, also after other sampling options.
TEST(SelfDraftModel, GreedyEstimatesAreThoseOfItsRankError) {
    const SamplerOptions greedy{.temperature = 0.0};
    Teller teller(kSmall);
    const auto drafter = teller.drafter({SourceKind::Retrieval}, greedy);
    const std::vector<TokenId> text = teller.tell(*drafter, greedy);
    SelfDraftModel source(teller.model.config().vocab, greedy, {.rows = DraftRows::Whole});
    EXPECT_EQ(source.rank_error(), kViewRankError);
    source.attach(*teller.over_view, {});
    for (int i = 0; i < 2; ++i) {
        ASSERT_TRUE(source.ready(text));
        TokenTree tree;
        tree.reset(text.back());
        source.expand(tree, text, {&kTreeRoot, 1});
        std::array<Proposal, 2> found;
        ASSERT_EQ(source.propose(kTreeRoot, std::ssize(text), PathNoise(), found), 2U);
        const std::span<const float> logits = source.logits(kTreeRoot);
        EXPECT_NEAR(std::log(found[0].probability / found[1].probability),
                    (logits[found[0].token] - logits[found[1].token]) / kViewRankError, 1e-2F);
        source.set_sampling({.temperature = 0.7});
        source.set_sampling(greedy);
    }
}

TEST(SelfDraftModel, VerificationReadsNothingThatAViewHolds) {
    for (const double temperature : {0.0, 0.8}) {
        const SamplerOptions sampling{.temperature = temperature, .top_k = 0, .seed = 5};
        Teller resident(kSmall);
        Teller streamed(kSmall, none_resident(resident));
        Teller resident_pages(kPaged);
        Teller streamed_pages(kPaged, none_resident(resident));
        NoProposer nothing;
        const std::vector<TokenId> plain = resident.tell(nothing, sampling);
        for (Teller* teller : {&resident, &streamed, &resident_pages, &streamed_pages}) {
            for (const auto& sources : {std::vector{SourceKind::Retrieval},
                                        {SourceKind::Context, SourceKind::Suffix, SourceKind::Retrieval}}) {
                const auto drafter = teller->drafter(sources, sampling);
                EXPECT_EQ(teller->tell(*drafter, sampling), plain);
                EXPECT_GT(drafter->figures().back().passes.value(), 10);
                const auto another = teller->drafter(sources, sampling);
                Poisoned poisoned(*another, teller->view);
                EXPECT_EQ(teller->tell(poisoned, sampling), plain);
            }
        }
    }
}

TEST(SelfDraftModel, MoreNodesThanAPassTakesCostSeveralPasses) {
    Teller teller(kSmall);
    SelfDraftModel source(teller.model.config().vocab, {.temperature = 0.0}, {});
    source.attach(*teller.over_view, [](std::int64_t n, std::int64_t) { return 1.0 + static_cast<double>(n); });
    EXPECT_DOUBLE_EQ(source.expand_seconds(16), 17.0);
    EXPECT_DOUBLE_EQ(source.expand_seconds(32), 34.0);
    EXPECT_DOUBLE_EQ(source.expand_seconds(37), 34.0 + 6.0);
}

}  // namespace
}  // namespace slipstream::draft
