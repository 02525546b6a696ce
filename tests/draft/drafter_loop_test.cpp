// The drafter in the generation loop, with models: whatever it guesses, texts are those of plain decoding, one after
// another, cut and given up, drawn or picked. The bundled pair with every source at once; tiny ones for the rest.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "draft/drafter.h"
#include "draft/models/mtp_source.h"
#include "draft/tables/corpus_builder.h"
#include "kernels/cpu_device.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/ranks/rank_target.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tests/draft/recorded_phrases.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_head.h"
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
    TinyHead head_source;
    ProposingHead head;
    TempFolder folder;
    Texts prompts;

    Pair(std::unique_ptr<ModelFiles> target, std::unique_ptr<ModelFiles> draft)
        : files(std::move(target)),
          draft_files(std::move(draft)),
          model(*files, device, LoadOptions{.context_tokens = kContext}),
          draft_model(*draft_files, device, {}),
          head_source(*files),
          head(head_source, device, {.context_tokens = kContext}, ProposingHead::LmHead::OfTarget) {
        head.use_lm_head_of(model);
    }

    [[nodiscard]] DraftContext target(const SamplerOptions& sampling) const {
        DraftContext target;
        target.vocab = model.config().vocab;
        target.sampling = sampling;
        target.files = files.get();
        target.model = &model;
        target.draft_model = &draft_model;
        target.head = &head;
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
        : cache_(pair.model.device(), pair.model.kv_layouts(), kContext, scratch_nodes_for(kBudget)),
          view_(pair.model.device(), pair.model.kv_layouts(), {.n_slots = view.slots(), .max_nodes = 2 * kBudget}),
          view_builder_(cache_, view_, pair.model, view),
          forward_(pair.model, forward_limits_for(kBudget)),
          view_passes_(forward_, view_),
          tail_(pair.model.device(), pair.model.config().d_model, kHiddenRows, cache_.max_nodes()),
          sampler_(sampling, pair.model.config().vocab),
          walk_(sampler_),
          rejection_(sampler_, pair.model.config().vocab, nullptr) {}

    void sample_by(const SamplerOptions& sampling) { sampler_ = Sampler(sampling, view_passes_.vocab()); }
    void walk_by(const DraftDistributions* distributions, std::int64_t vocab) {
        rejection_ = RejectionVerifier(sampler_, vocab, distributions);
        rejects_ = true;
    }

    /// Each prompt and 50 tokens behind it. Every third pass of a text is given up first; some texts are cut back and
    /// go on.
    Texts serve(Proposer& proposer, const Texts& prompts) {
        RankTarget target(forward_, cache_);
        target.build_views_with({&view_builder_});
        target.keep_hidden_in(&tail_);
        Sequence sequence(target);
        GenerationLoop loop(sequence, rejects_ ? static_cast<Verifier&>(rejection_) : walk_, proposer,
                            {.budget = kBudget, .end_tokens = {}});
        Texts texts;
        for (const std::vector<TokenId>& prompt : prompts) {
            target.truncate(0);
            n_passes = 0;
            loop.begin(prompt);
            const std::int64_t end = std::ssize(prompt) + 50;
            extend(loop, end);
            if (cut_back || texts.size() % 2 == 1) {
                loop.truncate(std::ssize(prompt) + 20);
                extend(loop, end);
            }
            texts.push_back(loop.text());
        }
        return texts;
    }
    void attach_to(Drafter& drafter, const PlannedSeconds& planned = {}) {
        drafter.attach_view(view_passes_, planned);
        drafter.attach_hidden(tail_);
    }
    std::int64_t n_passes = 0;
    bool cut_back = false;  // every text, not every other one

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
    HiddenTail tail_;
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
    server.attach_to(*drafter);
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

/// Counts the passes without draft tokens.
class LonePasses final : public Proposer {
public:
    explicit LonePasses(Proposer& proposer) : proposer_(proposer) {}
    [[nodiscard]] LogitRequest logit_request() const override { return proposer_.logit_request(); }
    void propose(TokenTree& tree, const ProposalLimits& limits) override { proposer_.propose(tree, limits); }
    void observe(const Observation& observation) override {
        if (observation.tree != nullptr && observation.tree->size() == 1) ++n;
        proposer_.observe(observation);
    }
    std::int64_t n = 0;

private:
    Proposer& proposer_;
};

// An expert of the target is damaged that no token of the plain texts chooses, but some draft tokens do: in the pass
// that verifies them, or already in one over a view or in the head. Whatever drafts, the texts are the plain ones.
TEST(DrafterLoop, DraftTokensThatADamagedExpertFailsDoNotChangeTheText) {
    const TinyModelOptions mixture{.n_layers = 3, .n_experts = 48, .n_chosen = 1};
    constexpr std::int64_t kLayer = 1;
    NoProposer nothing;
    const auto lone_passes = [&](const Pair& pair, const DraftOptions& options, const Texts& plain) {
        const auto drafter = make_drafter(options, pair.target(kSampled));
        Server server(pair, kSampled);
        server.attach_to(*drafter);
        LonePasses counted(*drafter);
        for (int round = 0; round < 2; ++round) EXPECT_EQ(server.serve(counted, pair.prompts), plain);
        return counted.n;
    };
    int n_damaged = 0;
    for (std::size_t expert = 0; expert < 48 && n_damaged < 2; ++expert) {
        auto files = make_tiny_model(mixture);
        const ConstTensorView up = files->weights().layers[kLayer].experts[expert][TensorRole::Up];
        *const_cast<float*>(float_row(up, 3)) = std::numeric_limits<float>::quiet_NaN();
        Pair pair(std::move(files), make_tiny_model({.n_layers = 1, .seed = 1}));
        for (std::uint32_t i = 0; i < 3; ++i) pair.prompts.push_back(phrases(i, 1 + 17 * i));
        Texts plain;
        try {
            plain = Server(pair, kSampled).serve(nothing, pair.prompts);
        } catch (const FormatError&) {
            continue;
        }
        ++n_damaged;
        const DraftOptions all = pair.everything(plain);
        std::int64_t n_lone = 0;
        for (std::size_t i = 0; i <= all_sources().size(); ++i) {
            DraftOptions options = all;
            if (i < all_sources().size()) options.sources = {all_sources()[i]};
            SCOPED_TRACE(i < all_sources().size() ? source_name(all_sources()[i]) : "all");
            n_lone += lone_passes(pair, options, plain);
        }
        EXPECT_GT(n_lone, 0);
    }
    EXPECT_EQ(n_damaged, 2);
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
            server.attach_to(*drafter, target.planned_seconds);
            server.walk_by(drafter->distributions(), pair->model.config().vocab);
            const Texts texts = server.serve(*drafter, pair->prompts);
            if (first.empty()) first = texts;
            EXPECT_EQ(texts, first);
            for (const SourceFigures& figures : drafter->figures()) EXPECT_GT(figures.accepted, 0) << figures.name;
        }
    }
}

SamplerOptions changed(SamplerOptions sampling, const std::function<void(SamplerOptions&)>& change) {
    change(sampling);
    return sampling;
}
// One after another, and back.
const std::vector<SamplerOptions> kSamplings = {
    kSampled,
    changed(kSampled, [](SamplerOptions& options) { options.seed = 9; }),
    changed(kSampled, [](SamplerOptions& options) { options.temperature = 1.1; }),
    changed(kSampled, [](SamplerOptions& options) { options.top_k = 5; }),
    kGreedy,
    changed(kSampled, [](SamplerOptions& options) { options.repeat_window = 3; }),
    kSampled,
};

SourceFigures sum_of(const Drafter& drafter) {
    SourceFigures sum;
    for (const SourceFigures& figures : drafter.figures()) {
        sum.offered += figures.offered;
        sum.accepted += figures.accepted;
    }
    return sum;
}

TEST(DrafterLoop, OtherSamplingGivesThePlainTextAndFiguresGoOn) {
    const auto pair = tiny_pair();
    NoProposer nothing;
    std::vector<Texts> plain;
    for (const SamplerOptions& sampling : kSamplings)
        plain.push_back(Server(*pair, sampling).serve(nothing, pair->prompts));
    std::vector<DraftOptions> all{pair->everything(plain.front())};
    for (const SourceKind kind : all_sources()) {
        all.push_back(all.front());
        all.back().sources = {kind};
    }
    for (const DraftOptions& options : all) {
        SCOPED_TRACE(options.sources.size() == 1 ? source_name(options.sources.front()) : "all");
        const auto drafter = make_drafter(options, pair->target(kSamplings.back()));
        Server server(*pair, kSamplings.back());
        server.attach_to(*drafter);
        for (std::size_t i = 0; i < kSamplings.size(); ++i) {
            const SourceFigures before = sum_of(*drafter);
            drafter->set_sampling(kSamplings[i]);
            server.sample_by(kSamplings[i]);
            EXPECT_EQ(sum_of(*drafter).offered, before.offered);
            EXPECT_EQ(server.serve(*drafter, pair->prompts), plain[i]) << i;
            EXPECT_GT(sum_of(*drafter).offered, before.offered);
            EXPECT_GE(sum_of(*drafter).accepted, before.accepted);
        }
    }
}

// The same logits, filters and noise: every draft token must come true.
TEST(DrafterLoop, AModelThatDraftsForItselfIsRightAfterEveryChangeOfSampling) {
    Pair pair(make_tiny_model({}), make_tiny_model({}));
    pair.prompts.push_back(phrases(1, 40));
    DraftOptions options;
    options.sources = {SourceKind::Model};
    options.shape = TreeShape::Chain;
    options.gamma = 5;
    const auto drafter = make_drafter(options, pair.target(kGreedy));
    Server server(pair, kGreedy);
    for (std::size_t i = 0; i < kSamplings.size(); ++i) {
        SCOPED_TRACE(i);
        drafter->set_sampling(kSamplings[i]);
        server.sample_by(kSamplings[i]);
        static_cast<void>(server.serve(*drafter, pair.prompts));
        const SourceFigures figures = drafter->figures().front();
        EXPECT_GE(figures.offered, 40 * (static_cast<std::int64_t>(i) + 1));
        EXPECT_EQ(figures.accepted, figures.offered);
        EXPECT_EQ(figures.name, "model");
    }
}

TEST(DrafterLoop, TablesProposeAfterAChangeOfSamplingAsIfTheyWereLoadedForIt) {
    const auto pair = tiny_pair();
    DraftOptions options = pair->everything(pair->prompts);
    const auto tree_of = [](Drafter& drafter, const std::vector<TokenId>& text) {
        TokenTree tree;
        tree.reset(text.back());
        drafter.observe({.text = text, .n_new = std::ssize(text)});
        drafter.propose(tree, {.budget = kBudget, .max_depth = 16, .text = text});
        return tree;
    };
    const std::vector<std::vector<SourceKind>> sets = {
        {SourceKind::Recycling},
        {SourceKind::Cacheback},
        {SourceKind::Bigram},
        {SourceKind::Unigram},
        {SourceKind::Cacheback, SourceKind::Bigram, SourceKind::Unigram}};
    for (const std::vector<SourceKind>& sources : sets) {
        options.sources = sources;
        SCOPED_TRACE(source_name(sources.front()));
        std::filesystem::remove_all(*options.tables);
        const auto drafter = make_drafter(options, pair->target(kSampled));
        Server server(*pair, kSampled);
        const Texts learnt = server.serve(*drafter, pair->prompts);
        drafter->save();
        // Greedily a merged tree goes by another calibration, from the beginning.
        std::vector<SamplerOptions> samplings = {kGreedy};
        if (sources.size() == 1) samplings = kSamplings;
        std::int64_t n_nodes = 0;
        std::int64_t n_changed = 0;
        for (const SamplerOptions& sampling : samplings) {
            const auto loaded = make_drafter(options, pair->target(sampling));
            const auto unchanged = make_drafter(options, pair->target(kSampled));
            drafter->set_sampling(sampling);
            for (const std::vector<TokenId>& text : learnt) {
                const TokenTree tree = tree_of(*drafter, text);
                const TokenTree expected = tree_of(*loaded, text);
                EXPECT_TRUE(std::ranges::equal(tree.tokens(), expected.tokens()));
                EXPECT_TRUE(std::ranges::equal(tree.parents(), expected.parents()));
                n_nodes += tree.size() - 1;
                n_changed += std::ranges::equal(tree.tokens(), tree_of(*unchanged, text).tokens()) ? 0 : 1;
            }
        }
        EXPECT_GT(n_nodes, 0);
        EXPECT_GT(n_changed, 0) << "sampling makes no difference";
    }
}

// Classical verification: the text depends on the draws, and they on options and text alone.
TEST(DrafterLoop, DrawsAfterAChangeOfSamplingAreThoseOfAFreshDrafter) {
    const auto pair = tiny_pair();
    // Longer than the draft model's window of 240 tokens: which of them it drops depends on the texts before.
    pair->prompts.push_back(phrases(7, 210));
    pair->prompts.push_back(phrases(7, 280));
    const struct {
        std::vector<SourceKind> sources;
        std::optional<TreeShape> shape;
    } cases[] = {{{SourceKind::Model}, std::nullopt},
                 {{SourceKind::Model}, TreeShape::Chain},
                 {{SourceKind::Retrieval}, TreeShape::Chain},
                 {{SourceKind::Model, SourceKind::Retrieval}, TreeShape::Chain},
                 {{SourceKind::Context, SourceKind::Recycling}, TreeShape::Merged}};
    ViewOptions view = kView;
    view.in_steps = true;
    for (const auto& [sources, shape] : cases) {
        SCOPED_TRACE(source_name(sources.front()));
        DraftOptions options;
        options.sources = sources;
        options.shape = shape;
        options.max_budget = kBudget;
        options.child_rule = ChildRule::Draw;
        options.noise_ranking = NoiseRanking::Blind;
        const auto serve = [&](Server& server, Drafter& drafter, const Texts& prompts) {
            server.walk_by(drafter.distributions(), pair->model.config().vocab);
            return server.serve(drafter, prompts);
        };
        const auto drafter = make_drafter(options, pair->target(kSampled));
        Server server(*pair, kSampled, view);
        server.attach_to(*drafter);
        const Texts first = serve(server, *drafter, pair->prompts);
        for (const SamplerOptions& sampling : kSamplings) {
            drafter->set_sampling(sampling);
            server.sample_by(sampling);
            const Texts texts = serve(server, *drafter, pair->prompts);
            EXPECT_EQ(texts == first, sampling == kSampled);
            for (std::size_t i = 0; i < texts.size(); ++i) {
                const auto fresh = make_drafter(options, pair->target(sampling));
                Server alone(*pair, sampling, view);
                alone.attach_to(*fresh);
                alone.cut_back = i % 2 == 1;
                EXPECT_EQ(serve(alone, *fresh, {pair->prompts[i]}).front(), texts[i]) << i;
            }
        }
    }
}

}  // namespace
}  // namespace slipstream::draft
