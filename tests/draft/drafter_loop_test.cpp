// The drafter in the generation loop, with models: whatever it guesses, texts are those of plain decoding, one after
// another, cut and given up, drawn or picked. The bundled pair with every source at once; tiny ones for the rest.
#include <atomic>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "draft/drafter.h"
#include "draft/tables/corpus_builder.h"
#include "kernels/cpu_device.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/ranks/rank_target.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tests/draft/recorded_phrases.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace slipstream::draft {
namespace {

constexpr std::int64_t kContext = 512;
constexpr std::int64_t kBudget = 40;
const ViewOptions kView{
    .budget_tokens = 48, .sink_tokens = 8, .recent_tokens = 16, .rebuild_tokens = 20, .growth_tokens = 64};

using Texts = std::vector<std::vector<TokenId>>;

// A target and a draft model, and everything else that sources need.
struct Pair {
    std::unique_ptr<ModelFiles> files, draft_files;
    CpuDevice device{CpuDeviceOptions{.n_threads = 1}};
    Model model, draft_model;
    TempFolder folder;
    Texts prompts;

    Pair(std::unique_ptr<ModelFiles> target, std::unique_ptr<ModelFiles> draft)
        : files(std::move(target)),
          draft_files(std::move(draft)),
          model(*files, device, LoadOptions{.context_tokens = kContext}),
          draft_model(*draft_files, device, {}) {}

    [[nodiscard]] DraftContext target(const SamplerOptions& sampling) const {
        DraftContext target;
        target.vocab = model.config().vocab;
        target.sampling = sampling;
        target.files = files.get();
        target.model = &model;
        target.draft_model = &draft_model;
        return target;
    }
    /// Every source, with a corpus of these texts.
    [[nodiscard]] DraftOptions everything(const Texts& corpus) const {
        Documents documents(model.config().vocab);
        for (const auto& text : corpus) documents.add(text);
        DraftOptions options;
        options.sources.assign(all_sources().begin(), all_sources().end());
        options.max_budget = kBudget;
        options.adapt_budget = false;
        options.tables = folder.path() / "tables";
        options.corpus = folder.path() / "corpus.table";
        write_corpus(documents, 0, *options.corpus, {});
        return options;
    }
};

std::unique_ptr<Pair> tiny_pair() {
    auto pair = std::make_unique<Pair>(make_tiny_model({}), make_tiny_model({.n_layers = 1, .seed = 1}));
    for (std::uint32_t i = 0; i < 5; ++i) pair->prompts.push_back(phrases(i, 1 + 37 * i));
    return pair;
}

std::unique_ptr<Pair> bundled_pair() {
    const std::string folder = SLIPSTREAM_SOURCE_DIR "/tools/demo_model/";
    auto pair = std::make_unique<Pair>(ModelFiles::open(folder + "target"), ModelFiles::open(folder + "draft"));
    const auto tokenizer = make_tokenizer(pair->files->tokenizer_source());
    for (const char* text : {"Once upon a time there lived a poor miller who had", "1 2 3 4 5 1 2 3 4 5 1 2 3",
                             "The king had a daughter, and she was so proud that", "the wolf the wolf the wolf"}) {
        pair->prompts.push_back(tokenizer->encode(text, SpecialTokens::AsText));
        pair->prompts.back().insert(pair->prompts.back().begin(), tokenizer->bos_id().value());
    }
    return pair;
}

// Texts one after another, as a program serves them.
class Server {
public:
    Server(const Pair& pair, const SamplerOptions& sampling, const ViewOptions& view = kView)
        : cache_(pair.model.device(), pair.model.kv_shape(), pair.model.config().n_layers, kContext,
                 scratch_nodes_for(kBudget)),
          view_(pair.model.device(), pair.model.kv_shape(), pair.model.config().n_layers,
                {.n_slots = view.slots(), .max_nodes = 2 * kBudget}),
          view_builder_(pair.model.device(), cache_, view_, pair.model.config(), view),
          forward_(pair.model, forward_limits_for(kBudget)),
          view_passes_(forward_, view_),
          sampler_(sampling, pair.model.config().vocab),
          walk_(sampler_),
          rejection_(sampler_, pair.model.config().vocab, nullptr) {}

    void walk_by(const DraftDistributions* distributions, std::int64_t vocab) {
        rejection_ = RejectionVerifier(sampler_, vocab, distributions);
        rejects_ = true;
    }

    /// Each prompt and 50 tokens behind it. Every third pass is given up first; some texts are cut back and go on.
    Texts serve(Proposer& proposer, const Texts& prompts) {
        RankTarget target(forward_, cache_);
        target.build_views_with({&view_builder_});
        Sequence sequence(target);
        GenerationLoop loop(sequence, rejects_ ? static_cast<Verifier&>(rejection_) : walk_, proposer,
                            {.budget = kBudget, .end_tokens = {}});
        Texts texts;
        for (const std::vector<TokenId>& prompt : prompts) {
            cache_.truncate(0);
            loop.begin(prompt);
            const std::int64_t end = std::ssize(prompt) + 50;
            extend(loop, end);
            if (texts.size() % 2 == 1) {
                loop.truncate(std::ssize(prompt) + 20);
                extend(loop, end);
            }
            texts.push_back(loop.text());
        }
        return texts;
    }
    [[nodiscard]] ViewPasses& view() { return view_passes_; }
    std::int64_t n_passes = 0;

private:
    void extend(GenerationLoop& loop, std::int64_t end) {
        const std::atomic<bool> cancelled = true;
        while (std::ssize(loop.text()) < end) {
            ASSERT_TRUE(n_passes % 3 < 2 || loop.step(end - std::ssize(loop.text()), &cancelled).empty());
            ASSERT_FALSE(loop.step(end - std::ssize(loop.text())).empty());
            ++n_passes;
        }
    }
    KvCache cache_;
    KvView view_;
    ViewBuilder view_builder_;
    Forward forward_;
    ViewPasses view_passes_;
    Sampler sampler_;
    ExactVerifier walk_;
    RejectionVerifier rejection_;
    bool rejects_ = false;
};

void expect_plain(const Pair& pair, const DraftOptions& options, const SamplerOptions& sampling) {
    NoProposer nothing;
    const Texts plain = Server(pair, sampling).serve(nothing, pair.prompts);
    const auto drafter = make_drafter(options, pair.target(sampling));
    Server server(pair, sampling);
    drafter->attach_view(server.view(), {});
    for (int round = 0; round < 2; ++round) EXPECT_EQ(server.serve(*drafter, pair.prompts), plain);
    std::int64_t accepted = 0;
    for (const SourceFigures& figures : drafter->figures()) accepted += figures.accepted;
    EXPECT_GT(accepted, 0) << "no guess ever came true";
    drafter->save();
}

const SamplerOptions kGreedy{.temperature = 0.0};
const SamplerOptions kSampled{.temperature = 0.8, .top_k = 0, .top_p = 0.95, .repeat_penalty = 1.1, .seed = 4};

TEST(DrafterLoop, EverySourceAtOnceOnTheBundledPairGivesThePlainText) {
    const auto pair = bundled_pair();
    const DraftOptions options = pair->everything(pair->prompts);
    for (const SamplerOptions& sampling : {kGreedy, kSampled}) {
        SCOPED_TRACE(sampling.temperature);
        expect_plain(*pair, options, sampling);
    }
}

TEST(DrafterLoop, EverySourceAndShapeGivesThePlainText) {
    const auto pair = tiny_pair();
    NoProposer nothing;
    // A corpus of these very texts, so that it has something to say.
    DraftOptions options = pair->everything(Server(*pair, kSampled).serve(nothing, pair->prompts));
    std::vector<DraftOptions> all{options};
    options.adapt_budget = true;
    all.push_back(options);
    options.shape = TreeShape::Chain;
    all.push_back(options);
    options.adapt_budget = false;
    options.shape.reset();
    options.noise_ranking = NoiseRanking::Blind;
    all.push_back(options);
    for (const SourceKind kind : all_sources()) {
        all.push_back(all.front());
        all.back().sources = {kind};
    }
    for (const DraftOptions& each : all) {
        SCOPED_TRACE(each.sources.size() == 1 ? source_name(each.sources.front()) : "all");
        expect_plain(*pair, each, kSampled);
    }
}

TEST(DrafterLoop, DrawnTreesKeepToTheBudgetAndGiveWholeTexts) {
    const auto pair = tiny_pair();
    DraftOptions options;
    options.sources = {SourceKind::Model};
    options.adapt_budget = false;
    options.child_rule = ChildRule::Draw;
    for (const std::optional<TreeShape> shape : {std::optional<TreeShape>{}, std::optional(TreeShape::Chain)})
        for (const std::int64_t budget : {2, 3, 7, 40}) {
            options.shape = shape;
            options.max_budget = budget;
            const auto drafter = make_drafter(options, pair->target(kSampled));
            ASSERT_NE(drafter->distributions(), nullptr);
            TokenTree tree;
            const std::vector<TokenId>& text = pair->prompts.back();
            tree.reset(text.back());
            drafter->observe({.text = text, .n_new = std::ssize(text)});
            drafter->propose(tree, {.budget = kBudget, .max_depth = 16, .text = text});
            EXPECT_GT(tree.size(), 1);
            EXPECT_LE(tree.size(), budget);
            Server server(*pair, kSampled);
            server.walk_by(drafter->distributions(), pair->model.config().vocab);
            const Texts texts = server.serve(*drafter, pair->prompts);
            for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i].size(), pair->prompts[i].size() + 50);
            EXPECT_GT(drafter->figures().front().accepted, 0);
        }
    options.child_rule = ChildRule::Pick;
    EXPECT_EQ(make_drafter(options, pair->target(kSampled))->distributions(), nullptr);
}

TEST(DrafterLoop, WhatIsDrawnDependsOnTheSeedAndNothingMeasured) {
    const auto pair = tiny_pair();
    const SamplerOptions sampling{.temperature = 0.9, .seed = 11};
    const struct {
        std::vector<SourceKind> sources;
        std::optional<TreeShape> shape;
    } cases[] = {{{SourceKind::Model}, std::nullopt},
                 {{SourceKind::Model}, TreeShape::Chain},
                 {{SourceKind::Retrieval}, TreeShape::Chain},
                 {{SourceKind::Model, SourceKind::Retrieval}, TreeShape::Chain}};
    ViewOptions view = kView;
    view.in_steps = true;
    for (const auto& [sources, shape] : cases) {
        DraftOptions options;
        options.sources = sources;
        options.shape = shape;
        options.max_budget = kBudget;
        options.child_rule = ChildRule::Draw;
        options.noise_ranking = NoiseRanking::Blind;
        Texts first;
        for (const double seconds_per_node : {1e-9, 1.0}) {  // a pass for nothing, and one that never pays
            DraftContext target = pair->target(sampling);
            target.planned_seconds = [=](std::int64_t n, std::int64_t) {
                return 1e-3 + seconds_per_node * static_cast<double>(n);
            };
            const auto drafter = make_drafter(options, target);
            Server server(*pair, sampling, view);
            drafter->attach_view(server.view(), target.planned_seconds);
            server.walk_by(drafter->distributions(), pair->model.config().vocab);
            const Texts texts = server.serve(*drafter, pair->prompts);
            if (first.empty()) first = texts;
            EXPECT_EQ(texts, first);
            for (const SourceFigures& figures : drafter->figures()) EXPECT_GT(figures.accepted, 0) << figures.name;
        }
    }
}

}  // namespace
}  // namespace slipstream::draft
