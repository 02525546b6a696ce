// The draft model: its cache against fresh passes, its guesses against the sampler, and the bundled pair end to end.
#include "draft/rungs/draft_model.h"

#include <algorithm>
#include <fstream>
#include <random>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft/papers/chain_shape.h"
#include "kernels/cpu_device.h"
#include "runtime/loop/device_target.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tests/support/error_text.h"
#include "tests/support/tiny_model.h"

namespace slipstream::draft {
namespace {

// Chains by a draft model.
class ChainGuesser final : public Guesser {
public:
    ChainGuesser(DraftModel& model, const SamplerOptions& sampling, std::int64_t gamma)
        : model_(model), noise_(sampling.temperature > 0.0 ? PathNoise(sampling.seed) : PathNoise()), gamma_(gamma) {}

    void propose(TokenTree& tree, const ProposalLimits& limits) override {
        propose_chain(tree,
                      {.text = limits.text, .budget = limits.budget, .max_depth = limits.max_depth, .noise = &noise_},
                      gamma_, model_);
    }
    void observe(const Observation& observation) override {
        if (observation.tree != nullptr) {
            const auto n_guesses = observation.tree->size() - 1;
            const auto n_accepted = std::ssize(observation.accepted) - 1;
            drafted += n_guesses;
            accepted += n_accepted;
            offered += std::min<std::int64_t>(n_accepted + 1, n_guesses);
            ++passes;
        }
        model_.observe(observation);
    }
    [[nodiscard]] double acceptance() const { return static_cast<double>(accepted) / static_cast<double>(offered); }

    std::int64_t drafted = 0;
    std::int64_t offered = 0;  // with an accepted parent
    std::int64_t accepted = 0;
    std::int64_t passes = 0;

private:
    DraftModel& model_;
    PathNoise noise_;
    std::int64_t gamma_;
};

// A target with all that a text needs.
class Target {
public:
    Target(const Model& model, std::int64_t context)
        : model_(model),
          cache_(model.device(), model.kv_shape(), model.config().n_layers, context, scratch_nodes_for(kBudget)),
          forward_(model, forward_limits_for(kBudget)) {}

    std::vector<TokenId> generate(const std::vector<TokenId>& prompt, std::int64_t n_tokens,
                                  const SamplerOptions& sampling, Guesser& guesser) {
        cache_.truncate(0);
        Sampler sampler(sampling, model_.config().vocab);
        ExactVerifier walk(sampler);
        DeviceTarget target(forward_, cache_);
        GenerationLoop loop(target, walk, guesser, {.budget = kBudget, .end_tokens = {}});
        loop.begin(prompt);
        for (std::int64_t left = n_tokens; left > 0;) {
            const auto fresh = loop.step(left);
            if (fresh.empty()) break;
            left -= std::ssize(fresh);
        }
        return loop.text();
    }

private:
    static constexpr std::int64_t kBudget = 16;
    const Model& model_;
    KvCache cache_;
    Forward forward_;
};

struct BundledPair {
    BundledPair()
        : target_files(ModelFiles::open(SLIPSTREAM_SOURCE_DIR "/tools/demo_model/target")),
          draft_files(ModelFiles::open(SLIPSTREAM_SOURCE_DIR "/tools/demo_model/draft")),
          device({.n_threads = 1}),
          target(*target_files, device, {}),
          draft(*draft_files, device, {}) {
        const auto tokenizer = make_tokenizer(target_files->tokenizer_source());
        const auto add = [&](std::string_view text) {
            prompts.push_back(tokenizer->encode(text, SpecialTokens::AsText));
            prompts.back().insert(prompts.back().begin(), tokenizer->bos_id().value());
        };
        for (const char* name : {"fisherman", "the_well", "three_sons", "wolf_at_the_door"}) {
            std::ifstream file(fmt::format("{}/tools/demo_model/prompts/{}.txt", SLIPSTREAM_SOURCE_DIR, name));
            std::ostringstream text;
            text << file.rdbuf();
            add(text.str());
        }
        for (const char* text :
             {"Once upon a time there lived a poor miller who had",
              "The king had a daughter, and she was so proud that",
              "\"Who has been sitting at my table?\" cried the giant, and",
              "In the middle of the forest stood a little house, and in it",
              "The youngest brother went out into the wide world to", "When winter came the old woman said to the cat,",
              "Far away, where the swallows fly, there was a prince",
              "The fox looked at the goose and thought to himself that"})
            add(text);
    }

    std::unique_ptr<ModelFiles> target_files, draft_files;
    CpuDevice device;
    Model target, draft;
    std::vector<std::vector<TokenId>> prompts;
};

constexpr SamplerOptions kSampled{.temperature = 0.8, .top_k = 40, .top_p = 0.95, .seed = 11};

TEST(DraftModelPair, TheOutputIsThePlainOne) {
    BundledPair pair;
    Target target(pair.target, 1024);
    const SamplerOptions settings[] = {
        {.temperature = 0.0}, kSampled, {.temperature = 0.8, .top_p = 0.95, .repeat_penalty = 1.2, .seed = 3}};
    for (const SamplerOptions& sampling : settings) {
        DraftModel draft(pair.draft, pair.target.config().vocab, sampling, {.max_nodes = 8});
        for (std::size_t i = 0; i < 4; ++i) {
            NoGuesser none;
            ChainGuesser chains(draft, sampling, 3);
            const auto plain = target.generate(pair.prompts[i], 60, sampling, none);
            EXPECT_EQ(target.generate(pair.prompts[i], 60, sampling, chains), plain)
                << "T " << sampling.temperature << ", prompt " << i;
            EXPECT_LT(chains.passes, 45);
        }
    }
}

TEST(DraftModelPair, ChainsOfThreeAreAcceptedAsExpected) {
    BundledPair pair;
    Target target(pair.target, 1024);
    const struct {
        SamplerOptions sampling;
        double least;  // measured 0.78 and 0.70 on these prompts
    } cases[] = {{{.temperature = 0.0}, 0.65}, {kSampled, 0.55}};
    for (const auto& [sampling, least] : cases) {
        std::int64_t drafted = 0, offered = 0, accepted = 0, passes = 0;
        for (const auto& prompt : pair.prompts) {
            DraftModel draft(pair.draft, pair.target.config().vocab, sampling, {.max_nodes = 8});
            ChainGuesser chains(draft, sampling, 3);
            static_cast<void>(target.generate(prompt, 200, sampling, chains));
            drafted += chains.drafted;
            offered += chains.offered;
            accepted += chains.accepted;
            passes += chains.passes;
        }
        const auto share = [&](std::int64_t of) { return static_cast<double>(accepted) / static_cast<double>(of); };
        fmt::print("T {}: accepted/offered {:.3f}, accepted/drafted {:.3f}, {:.2f} tokens a pass\n",
                   sampling.temperature, share(offered), share(drafted), 1.0 + share(passes));
        EXPECT_GE(share(offered), least) << "T " << sampling.temperature;
    }
}

// The models were trained on texts of 256 and 2048 tokens; here the text grows to 3500.
TEST(DraftModelPair, AcceptanceLastsFarBehindTheDraftModelsOwnContext) {
    BundledPair pair;
    Target target(pair.target, 4096);
    DraftModel draft(pair.draft, pair.target.config().vocab, kSampled, {.max_nodes = 8});
    ChainGuesser near(draft, kSampled, 3);
    std::vector<TokenId> text = target.generate(pair.prompts[1], 300, kSampled, near);
    ChainGuesser between(draft, kSampled, 3);
    text = target.generate(text, 2700, kSampled, between);
    ChainGuesser far(draft, kSampled, 3);
    EXPECT_EQ(target.generate(text, 500, kSampled, far).size(), text.size() + 500);
    fmt::print("accepted/offered: {:.3f} in the first 300 tokens, {:.3f} in the next 2700, {:.3f} in 500 more\n",
               near.acceptance(), between.acceptance(), far.acceptance());
    EXPECT_GT(draft.window().n_dropped(), 3000);
    EXPECT_GE(between.acceptance(), near.acceptance() - 0.12);
    EXPECT_GE(far.acceptance(), near.acceptance() - 0.12);
}

// A model that guesses for itself is always right, in a window that holds the whole text: same logits, same noise.
TEST(DraftModel, AModelAgreesWithItself) {
    const auto files = make_tiny_model({});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    Target target(model, 512);
    for (const SamplerOptions& sampling : {SamplerOptions{.temperature = 0.0}, kSampled,
                                           SamplerOptions{.temperature = 1.2, .top_k = 0, .repeat_penalty = 1.3}}) {
        DraftModel draft(model, 97, sampling, {.max_nodes = 8});
        ChainGuesser chains(draft, sampling, 5);
        static_cast<void>(target.generate({1, 5, 9}, 200, sampling, chains));
        EXPECT_EQ(chains.accepted, chains.drafted) << "T " << sampling.temperature;
        EXPECT_LE(chains.passes, 34);
    }
}

// Grows random trees over a random text, level by level, takes random paths, cuts, and begins anew.
class RandomTexts {
public:
    RandomTexts(std::int64_t n_layers, const DraftModelOptions& options, std::uint32_t seed)
        : files_(make_tiny_model({.n_layers = n_layers})),
          device_({.n_threads = 1}),
          model_(*files_, device_, {}),
          draft_(model_, 97, {.temperature = 0.0}, options),
          reference_(model_, {.max_tokens = 1024, .max_logit_rows = 1}),
          random_(seed) {
        begin(1 + below(30));
    }

    void begin(std::int64_t n_tokens) {
        text_.clear();
        extend(n_tokens);
        draft_.observe({.text = text_, .n_new = std::ssize(text_)});
    }

    // One tree; every expanded node's logits are those of a fresh pass over the window's tokens and its path.
    void step() {
        tree_.reset(text_.back());
        std::vector<std::int32_t> level = {0};
        for (std::int64_t n_expanded = 0;;) {
            draft_.expand(tree_, text_, level);
            n_expanded += std::ssize(level);
            for (const std::int32_t node : level) check(node);
            if (n_expanded + 3 > draft_.max_nodes()) break;
            std::vector<std::int32_t> next;
            for (int i = 0; i < 3; ++i) {
                const std::int32_t parent = level[static_cast<std::size_t>(below(std::ssize(level)))];
                const std::int32_t size_before = static_cast<std::int32_t>(tree_.size());
                const std::int32_t node = tree_.add(parent, static_cast<TokenId>(below(97)));
                if (node == size_before) next.push_back(node);
            }
            level = next;
        }
        std::int32_t node = static_cast<std::int32_t>(below(tree_.size()));  // the path to it is accepted
        std::vector<TokenId> path;
        for (; node > 0; node = tree_.parent(node)) path.push_back(tree_.token(node));
        text_.insert(text_.end(), path.rbegin(), path.rend());
        if (path.empty() || below(4) > 0) text_.push_back(static_cast<TokenId>(below(97)));
        const std::int64_t n_new = std::ssize(path) + (std::ssize(text_) > n_text_ + std::ssize(path) ? 1 : 0);
        n_text_ = std::ssize(text_);
        draft_.observe({.text = text_, .n_new = n_new, .tree = &tree_});
        ASSERT_LT(draft_.window().n_tokens(), n_text_) << "all but the last token at most";
    }
    void cut(std::int64_t n_tokens) {
        text_.resize(static_cast<std::size_t>(std::max<std::int64_t>(1, std::ssize(text_) - n_tokens)));
        n_text_ = std::ssize(text_);
        draft_.observe({.text = text_, .n_new = 0});
    }
    // As a prompt that goes on from this text: what both begin with stays cached.
    void begin_with_the_same(std::int64_t n_tokens) {
        extend(n_tokens);
        draft_.observe({.text = text_, .n_new = std::ssize(text_)});
    }

    [[nodiscard]] std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_()) % n; }
    [[nodiscard]] const WindowKv& window() const { return draft_.window(); }
    [[nodiscard]] std::int64_t n_text() const { return n_text_; }

private:
    void extend(std::int64_t n_tokens) {
        for (std::int64_t i = 0; i < n_tokens; ++i) text_.push_back(static_cast<TokenId>(below(97)));
        n_text_ = std::ssize(text_);
    }

    void check(std::int32_t node) {
        // While a tree stands the window holds all but the tokens that its first pass fed.
        const WindowKv& window = draft_.window();
        std::vector<TokenId> tokens(text_.begin(), text_.begin() + std::min(window.shape().sinks, n_text_));
        for (std::int64_t at = std::ssize(tokens) + window.n_dropped(); at < n_text_; ++at)
            tokens.push_back(text_[static_cast<std::size_t>(at)]);
        std::vector<TokenId> path;
        for (std::int32_t at = node; at > 0; at = tree_.parent(at)) path.push_back(tree_.token(at));
        tokens.insert(tokens.end(), path.rbegin(), path.rend());
        KvCache cache(device_, model_.kv_shape(), model_.config().n_layers, 512, 512);
        std::vector<NodeId> nodes;
        for (std::size_t i = 0; i < tokens.size(); ++i)
            nodes.push_back(cache.add_node(nodes.empty() ? kCommittedTip : nodes.back()));
        const auto last = static_cast<std::int32_t>(tokens.size()) - 1;
        const ConstTensorView row = reference_.run(cache, tokens, nodes, {&last, 1});
        const std::span<const float> logits = draft_.logits(node);
        ASSERT_TRUE(std::equal(logits.begin(), logits.end(), float_row(row, 0)))
            << "node " << node << " of a text of " << n_text_ << ", " << window.n_dropped() << " dropped";
    }

    std::unique_ptr<ModelFiles> files_;
    CpuDevice device_;
    Model model_;
    DraftModel draft_;
    Forward reference_;
    std::mt19937 random_;
    std::vector<TokenId> text_;
    std::int64_t n_text_ = 0;
    TokenTree tree_;
};

TEST(DraftModel, TheCacheIsThatOfAFreshPass) {
    for (const std::uint32_t seed : {1U, 2U}) {
        RandomTexts texts(2, {.max_nodes = 12}, seed);
        while (texts.n_text() < 200) {
            texts.step();
            if (HasFatalFailure()) return;
            if (texts.below(5) == 0) texts.cut(texts.below(12));
            if (texts.below(9) == 0) texts.begin_with_the_same(1 + texts.below(4));
        }
        EXPECT_EQ(texts.window().n_dropped(), 0);
    }
}

// One layer: keys know their own token alone, so that a window that slid is a fresh one, to the bit.
TEST(DraftModel, AWindowThatSlidIsTheCacheOfItsTokens) {
    for (const std::uint32_t seed : {1U, 2U, 3U}) {
        RandomTexts texts(1, {.max_nodes = 12, .window = {.sinks = 4, .recent = 20, .slots = 90}}, seed);
        for (int step = 0; step < 150; ++step) {
            texts.step();
            if (HasFatalFailure()) return;
            EXPECT_LE(texts.window().cache().n_committed(), 90 + 12);
            if (texts.below(20) == 0) texts.cut(texts.below(texts.below(2) == 0 ? 10 : 150));
            if (texts.below(20) == 0) texts.begin_with_the_same(1 + texts.below(300));
            if (texts.below(40) == 0) texts.begin(1 + texts.below(400));
        }
    }
}

TEST(DraftModel, GuessesAreTheSamplersOwnOnThePath) {
    const auto files = make_tiny_model({});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    const SamplerOptions sampling{.temperature = 0.9, .top_k = 30, .top_p = 0.9, .repeat_penalty = 1.5, .seed = 77};
    DraftModel draft(model, 97, sampling, {.max_nodes = 8});
    const std::vector<TokenId> text = {5, 6, 7, 8, 9};
    TokenTree tree;
    tree.reset(9);
    const std::int32_t child = tree.add(0, 40);
    const std::int32_t nodes[] = {0, child};
    draft.expand(tree, text, nodes);
    Sampler sampler(sampling, 97);
    std::vector<TokenId> path = text;
    for (const std::int32_t node : nodes) {
        if (node > 0) path.push_back(40);
        const auto logits = draft.logits(node);
        Proposal out[97];
        // With the noise the best guess is what the sampler draws.
        for (std::int64_t position = 5; position < 60; ++position) {
            ASSERT_EQ(draft.propose(node, position, PathNoise(77), out), 64U);
            EXPECT_EQ(out[0].token, sampler.sample(logits, position, path)) << "node " << node << " at " << position;
        }
        const auto expected = sampler.distribution(logits, path);
        const auto distribution = draft.distribution(node);
        ASSERT_EQ(distribution.size(), expected.size());
        // Without, guesses come by their probability; the filters' survivors first, then others, none twice.
        const std::size_t n = draft.propose(node, 6, PathNoise(), out);
        ASSERT_GT(n, expected.size());
        std::vector<TokenId> tokens;
        for (std::size_t i = 0; i < n; ++i) {
            tokens.push_back(out[i].token);
            EXPECT_LT(out[i].cell, draft.n_cells());
            EXPECT_GT(out[i].probability, 0.0F);
            EXPECT_LT(out[i].probability, 1.0F);
            if (i >= expected.size()) continue;
            EXPECT_EQ(out[i].token, expected[i].id);
            EXPECT_EQ(distribution[i].id, expected[i].id);
            EXPECT_NEAR(out[i].probability, expected[i].probability, 1e-5);
        }
        std::ranges::sort(tokens);
        EXPECT_EQ(std::ranges::adjacent_find(tokens), tokens.end());
    }
    EXPECT_GT(draft.expand_seconds(1), 0.0);
    EXPECT_EQ(draft.propose(0, 6, PathNoise(77), {}), 0U);
}

TEST(DraftModel, IdsBeyondTheNarrowerVocabularyAreNeitherProposedNorFed) {
    const auto files = make_tiny_model({});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    Proposal out[97];
    TokenTree tree;
    const std::int32_t root = 0;
    DraftModel of_narrow(model, 60, {.temperature = 0.0});
    tree.reset(3);
    of_narrow.expand(tree, std::vector<TokenId>{1, 2, 3}, {&root, 1});
    EXPECT_EQ(of_narrow.logits(0).size(), 60U);
    const std::size_t n = of_narrow.propose(0, 3, PathNoise(), out);
    for (std::size_t i = 0; i < n; ++i) EXPECT_LT(out[i].token, 60);
    DraftModel of_wide(model, 150, {.temperature = 0.8, .repeat_penalty = 1.1});
    tree.reset(140);
    of_wide.expand(tree, std::vector<TokenId>{1, 120, 140}, {&root, 1});
    EXPECT_GT(of_wide.propose(0, 3, PathNoise(1), out), 0U);
    of_wide.observe({.text = std::vector<TokenId>{1, 120, 140, 149, 2}, .n_new = 2});
    tree.reset(2);
    of_wide.expand(tree, std::vector<TokenId>{1, 120, 140, 149, 2}, {&root, 1});
    EXPECT_EQ(of_wide.window().n_tokens(), 3) << "node 0 of the first tree was committed, its children are not known";
}

TEST(DraftModel, WhatAPassTakesIsPlannedAndThenSeen) {
    const auto files = make_tiny_model({});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    DraftModel untold(model, 97, {.temperature = 0.0});
    EXPECT_EQ(untold.expand_seconds(1), 0.0);
    DraftModel planned(model, 97, {.temperature = 0.0},
                       {.pass_plan = [](std::int64_t n, std::int64_t) { return 100.0 + static_cast<double>(n); }});
    EXPECT_DOUBLE_EQ(planned.expand_seconds(1), 101.0);
    EXPECT_DOUBLE_EQ(planned.expand_seconds(32), 132.0);
    TokenTree tree;
    tree.reset(3);
    const std::int32_t root = 0;
    for (DraftModel* draft : {&untold, &planned}) {
        draft->expand(tree, std::vector<TokenId>{1, 2, 3}, {&root, 1});
        EXPECT_GT(draft->expand_seconds(1), 0.0);
        EXPECT_LT(draft->expand_seconds(1), 60.0);
        EXPECT_GE(draft->expand_seconds(32), draft->expand_seconds(1));
    }
}

// A window that holds every text keeps no copies to move rows by, and says what one that may slide says.
TEST(DraftModel, AWindowThatNeverSlidesSaysTheSameInLessMemory) {
    const auto files = make_tiny_model({});
    const SamplerOptions sampling{.temperature = 0.8, .top_k = 0, .seed = 3};
    const auto bytes_and_logits = [&](bool slides) {
        CpuDevice device({.n_threads = 1});
        const Model model(*files, device, {});
        const std::size_t before = device.budget().used_bytes();
        DraftModel draft(model, 97, sampling, {.max_nodes = 8, .window = {.slots = 400, .slides = slides}});
        const std::size_t bytes = device.budget().used_bytes() - before;
        EXPECT_EQ(draft.window().shape().slides, slides);
        std::mt19937 random(2);
        std::vector<TokenId> text = {1};
        std::vector<float> all;
        draft.observe({.text = text, .n_new = 1});
        for (int pass = 0; text.size() < 380; ++pass) {
            TokenTree tree;
            tree.reset(text.back());
            propose_chain(tree, {.text = text, .budget = 9, .max_depth = 8, .noise = nullptr}, 4, draft);
            for (std::int32_t node = 0; node + 1 < tree.size(); ++node)
                all.insert(all.end(), draft.logits(node).begin(), draft.logits(node).end());
            const std::size_t n = 1 + random() % static_cast<std::size_t>(tree.size());
            for (std::size_t i = 1; i < n; ++i) text.push_back(tree.token(static_cast<std::int32_t>(i)));
            text.push_back(static_cast<TokenId>(random() % 97));
            draft.observe({.text = text, .n_new = static_cast<std::int64_t>(n), .tree = &tree});
            if (pass % 9 != 8) continue;
            text.resize(text.size() - random() % 5);
            draft.observe({.text = text, .n_new = 0});
        }
        return std::pair(bytes, all);
    };
    const auto [with_copies, said_by_sliding] = bytes_and_logits(true);
    const auto [without, said] = bytes_and_logits(false);
    EXPECT_GT(said.size(), 97U * 200U);
    EXPECT_TRUE(said == said_by_sliding);
    // K and V of 400 slots and more, in floats: [2 layers][K|V][400][2 heads x 16].
    EXPECT_GE(with_copies - without, std::size_t{2} * 2 * 400 * 32 * sizeof(float));
}

// The model's own context bounds a window that was to hold every text: then it slides.
TEST(DraftModel, AContextThatIsTooShortForTheTextMakesTheWindowSlide) {
    const auto files = make_tiny_model({.context_tokens = 128});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    DraftModel draft(model, 97, {.temperature = 0.0}, {.max_nodes = 5, .window = {.slots = 400, .slides = false}});
    EXPECT_TRUE(draft.window().shape().slides);
    EXPECT_EQ(draft.window().shape().slots, 123);
    TokenTree tree;
    tree.reset(3);
    propose_chain(tree, {.text = std::vector<TokenId>(300, 3), .budget = 9, .max_depth = 8}, 4, draft);
    EXPECT_EQ(tree.size(), 5);
}

TEST(DraftModel, LimitsHold) {
    const auto files = make_tiny_model({.context_tokens = 128});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    DraftModel draft(model, 97, {.temperature = 0.0}, {.max_nodes = 5});
    EXPECT_EQ(draft.max_nodes(), 5);
    EXPECT_EQ(draft.window().shape().slots, 123) << "positions of the model, less those of a tree";
    TokenTree tree;
    tree.reset(3);
    const std::vector<TokenId> text(300, 3);
    propose_chain(tree, {.text = text, .budget = 64, .max_depth = 64}, 40, draft);
    EXPECT_EQ(tree.size(), 6) << "children of five nodes";
    const std::int32_t last = 5;
    EXPECT_DEATH(draft.expand(tree, text, {&last, 1}), "1 nodes behind 5, room for 5");
    EXPECT_EQ(DraftModel(model, 97, {}, {.max_nodes = 512}).max_nodes(), 64) << "half the model's positions";
    const auto short_files = make_tiny_model({.context_tokens = 40});
    const Model short_model(*short_files, device, {});
    EXPECT_THAT(
        error_text<RequestError>([&] { const DraftModel none(short_model, 97, {}); }),
        testing::HasSubstr("the draft model has a context of 40 tokens, too few for a window of 16 sink tokens"));
}

}  // namespace
}  // namespace slipstream::draft
