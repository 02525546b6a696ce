// The proposer of the generation loop without a model: limits, figures, forgetting, texts that come and go, what is
// refused, and the off switch.
#include "draft/drafter.h"

#include <numeric>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/draft/recorded_phrases.h"
#include "tests/support/error_text.h"

namespace slipstream::draft {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

const std::vector<SourceKind> kTokenSources = {SourceKind::Context,   SourceKind::Suffix,    SourceKind::Lookup,
                                               SourceKind::Cacheback, SourceKind::Recycling, SourceKind::Lookahead};

DraftOptions options_of(std::vector<SourceKind> sources, std::int64_t budget = 32) {
    DraftOptions options;
    options.sources = std::move(sources);
    options.max_budget = budget;
    options.adapt_budget = false;
    return options;
}

DraftContext target_at(double temperature = 0.0) {
    DraftContext target;
    target.vocab = kPhraseVocab;
    target.sampling = {.temperature = temperature, .seed = 5};
    return target;
}

std::unique_ptr<Drafter> drafter_of(std::vector<SourceKind> sources, std::int64_t budget = 32) {
    return make_drafter(options_of(std::move(sources), budget), target_at());
}

TEST(Drafter, WithoutSourcesItGuessesNothing) {
    const auto drafter = drafter_of({});
    const ReplayFigures figures = replay(*drafter, recorded_phrases(1), 32);
    EXPECT_EQ(figures.passes, figures.tokens);
    EXPECT_EQ(figures.nodes, figures.passes);
    EXPECT_TRUE(drafter->figures().empty());
}

TEST(Drafter, MergedSourcesCommitMoreThanAnyOfThem) {
    const ReplayFigures merged = replay(*drafter_of(kTokenSources), recorded_phrases(1), 32);
    EXPECT_GT(merged.mean_accepted_tokens(), 2.5);
    for (const SourceKind kind : {SourceKind::Suffix, SourceKind::Lookup, SourceKind::Cacheback})
        EXPECT_GT(merged.mean_accepted_tokens(),
                  replay(*drafter_of({kind}), recorded_phrases(1), 32).mean_accepted_tokens())
            << source_name(kind);
}

TEST(Drafter, LeavesOutASourceThatDoesNotKnowSoLargeAVocabulary) {
    constexpr std::int64_t largest = 2'097'151;  // of Recycling; models may have eight times as many
    DraftContext target = target_at();
    std::vector<std::string> notes;
    target.on_note = [&](std::string_view note) { notes.emplace_back(note); };
    const auto names = [&](const std::vector<SourceKind>& sources) {
        std::vector<std::string> found;
        for (const SourceFigures& figures : make_drafter(options_of(sources), target)->figures())
            found.emplace_back(figures.name);
        return found;
    };
    target.vocab = largest;
    EXPECT_THAT(names(kTokenSources), Contains("recycling"));
    EXPECT_THAT(notes, IsEmpty());
    target.vocab = largest + 1;
    EXPECT_THAT(names(kTokenSources), AllOf(SizeIs(kTokenSources.size() - 1), Not(Contains("recycling"))));
    EXPECT_THAT(notes, ElementsAre("the source recycling knows vocabularies of at most 2097151 tokens, this one has "
                                   "2097152; it is left out"));
    EXPECT_THAT(names({SourceKind::Recycling}), IsEmpty());
    target.vocab = std::int64_t{1} << 24;  // the largest that a model may have
    notes.clear();
    const auto drafter = make_drafter(options_of(kTokenSources), target);
    const std::vector<TokenId> text = {0, static_cast<TokenId>(target.vocab - 1), 5, 0, 16'000'000, 5};
    drafter->observe({.text = text, .n_new = std::ssize(text)});
    TokenTree tree;
    tree.reset(text.back());
    drafter->propose(tree, {.budget = 32, .max_depth = 8, .text = text});
    EXPECT_THAT(notes, SizeIs(1));
    DraftOptions shaped = options_of({SourceKind::Recycling});
    shaped.shape = TreeShape::Recycling;
    EXPECT_EQ(error_text<RequestError>([&] { static_cast<void>(make_drafter(shaped, target)); }),
              "the source recycling knows vocabularies of at most 2097151 tokens, this one has 16777216; use another "
              "--tree");
}

TEST(Drafter, FiguresOfOneSourceAreTheTokensItBrought) {
    std::vector<DraftOptions> all;
    for (const std::optional<TreeShape> shape :
         {std::optional<TreeShape>{}, std::optional(TreeShape::Merged), std::optional(TreeShape::Chain)}) {
        for (const SourceKind kind :
             {SourceKind::Context, SourceKind::Suffix, SourceKind::Lookup, SourceKind::Cacheback}) {
            all.push_back(options_of({kind}));
            all.back().shape = shape;
        }
    }
    all.push_back(options_of({SourceKind::Context}));
    all.back().shape = TreeShape::NGrammys;
    for (const DraftOptions& options : all) {
        const auto drafter = make_drafter(options, target_at());
        const ReplayFigures played = replay(*drafter, recorded_phrases(2), 32);
        ASSERT_EQ(drafter->figures().size(), 1U);
        const SourceFigures figures = drafter->figures().front();
        EXPECT_EQ(figures.name, source_name(options.sources.front()));
        // Where an answer ends before its last guess is looked at, that guess has come true all the same.
        EXPECT_GE(figures.accepted, played.tokens - played.passes) << figures.name;
        EXPECT_LE(figures.accepted, played.tokens - played.passes + 2) << figures.name;
        EXPECT_GE(figures.parents, figures.accepted);
        EXPECT_GE(figures.offered, figures.parents);
        EXPECT_LE(figures.offered, played.nodes - played.passes);
        EXPECT_GT(figures.accepted, 0);
        EXPECT_GT(figures.seconds, 0.0);
    }
}

TEST(Drafter, AMergedNodeCountsForEverySourceThatNamedIt) {
    const auto drafter = drafter_of({SourceKind::Context, SourceKind::Suffix, SourceKind::Lookup});
    const ReplayFigures played = replay(*drafter, recorded_phrases(2), 32);
    std::int64_t accepted = 0;
    for (const SourceFigures& figures : drafter->figures()) {
        EXPECT_LE(figures.accepted, played.tokens - played.passes + 2);  // an answer's end, twice
        EXPECT_GE(figures.parents, figures.accepted);
        EXPECT_GE(figures.offered, figures.parents);
        accepted += figures.accepted;
    }
    EXPECT_GT(accepted, (played.tokens - played.passes) * 3 / 2);
}

TEST(Drafter, AChainsNodesCountForThoseWhoNamedThem) {
    DraftOptions options = options_of({SourceKind::Context, SourceKind::Suffix, SourceKind::Lookup});
    options.shape = TreeShape::Chain;
    options.gamma = 4;
    const auto drafter = make_drafter(options, target_at());
    const ReplayFigures played = replay(*drafter, recorded_phrases(2), 32);
    std::int64_t accepted = 0;
    std::vector<std::int64_t> offered;
    for (const SourceFigures& figures : drafter->figures()) {
        EXPECT_GE(figures.parents, figures.accepted);
        EXPECT_GE(figures.offered, figures.parents);
        EXPECT_LE(figures.accepted, played.tokens - played.passes);
        EXPECT_LE(figures.offered, played.nodes - played.passes);
        EXPECT_GT(figures.accepted, 0) << figures.name;
        accepted += figures.accepted;
        offered.push_back(figures.offered);
    }
    EXPECT_GE(accepted, played.tokens - played.passes) << "every guess was somebody's";
    EXPECT_LT(offered[2], offered[0]) << "lookup names fewer tokens than context";
}

TEST(Drafter, TreesKeepToTheLoopsLimitsAndTheirOwn) {
    std::mt19937 random(3);
    for (const std::optional<TreeShape> shape :
         {std::optional<TreeShape>{}, std::optional(TreeShape::Merged), std::optional(TreeShape::Chain)})
        for (const std::vector<SourceKind>& sources : {kTokenSources, {SourceKind::Context}, {SourceKind::Cacheback}}) {
            DraftOptions options = options_of(sources, 12);
            options.shape = shape;
            const auto drafter = make_drafter(options, target_at());
            std::vector<TokenId> text = phrases(3, 300);
            drafter->observe({.text = text, .n_new = std::ssize(text)});
            for (int i = 0; i < 60; ++i) {
                const auto budget = static_cast<std::int64_t>(1 + random() % 30);
                const auto max_depth = static_cast<std::int64_t>(random() % 6);
                TokenTree tree;
                tree.reset(text.back());
                drafter->propose(tree, {.budget = budget, .max_depth = max_depth, .text = text});
                ASSERT_LE(tree.size(), std::min<std::int64_t>(budget, 12));
                ASSERT_TRUE(tree.size() == 1 || (budget > 1 && max_depth > 0));
                for (const TreeNode node : tree.draft_nodes()) {
                    ASSERT_LE(tree.depth(node), max_depth);
                    ASSERT_TRUE(tree.token(node) >= 0 && tree.token(node) < kPhraseVocab);
                }
                if (i % 5 == 4) continue;  // a pass that was given up
                text.push_back(static_cast<TokenId>(random() % 97));
                drafter->observe({.text = text, .n_new = 1, .tree = &tree, .accepted = {&kTreeRoot, 1}});
            }
        }
}

TEST(Drafter, AfterAResetItIsAsNew) {
    for (const SourceKind kind : kTokenSources) {
        const auto drafter = drafter_of({kind, SourceKind::Context});
        const ReplayFigures first = replay(*drafter, recorded_phrases(4), 32);
        const ReplayFigures second = replay(*drafter, recorded_phrases(4), 32);
        drafter->reset();
        const ReplayFigures third = replay(*drafter, recorded_phrases(4), 32);
        EXPECT_GT(second.mean_accepted_tokens(), first.mean_accepted_tokens()) << source_name(kind);
        EXPECT_EQ(third.accept_lengths, first.accept_lengths) << source_name(kind);
    }
}

// The tokens that are to come behind a text, pass by pass.
struct Future {
    std::vector<TokenId> text;
    std::span<const TokenId> ahead;
    std::int64_t n_passes = 0;
    double seconds = 0.0;

    /// A pass over n nodes takes `base + a_node * n` seconds, as the drafter is told; 0: it is told nothing. Returns n.
    std::int64_t pass(Proposer& proposer, double base = 0.0, double a_node = 0.0) {
        TokenTree tree;
        tree.reset(text.back());
        proposer.propose(tree, {.budget = 32, .max_depth = 16, .text = text});
        std::vector<TreeNode> accepted = {kTreeRoot};
        while (accepted.size() < ahead.size()) {
            const auto child = tree.child(accepted.back(), ahead[accepted.size() - 1]);
            if (!child) break;
            accepted.push_back(*child);
        }
        text.insert(text.end(), ahead.begin(), ahead.begin() + std::ssize(accepted));
        ahead = ahead.subspan(accepted.size());
        const double took = base + a_node * tree.size();
        ++n_passes;
        seconds += took;
        proposer.observe(
            {.text = text, .n_new = std::ssize(accepted), .tree = &tree, .accepted = accepted, .pass_seconds = took});
        return tree.size();
    }
};

// As the generation loop begins texts: each is handed over whole, without a word of the one before.
Future begin(Proposer& proposer, std::vector<TokenId> prompt, std::span<const TokenId> answer) {
    proposer.observe({.text = prompt, .n_new = std::ssize(prompt)});
    return {.text = std::move(prompt), .ahead = answer};
}

TEST(Drafter, TextsFollowOneAnotherWithoutACut) {
    const auto drafter = drafter_of(kTokenSources);
    std::vector<TokenId> last;
    for (std::uint32_t i = 0; i < 12; ++i) {
        // Unrelated ones, longer and shorter, one token alone, the same again, and one that goes on from the last.
        std::vector<TokenId> prompt = phrases(i, i % 4 == 3 ? 1 : 20 + i * 31 % 200);
        if (i % 5 == 4) prompt = last;
        if (i % 6 == 5) prompt.insert(prompt.begin(), last.begin(), last.end());
        const std::vector<TokenId> answer = phrases(i + 50, 120);
        Future future = begin(*drafter, prompt, answer);
        while (!future.ahead.empty()) future.pass(*drafter);
        EXPECT_LT(future.n_passes, i < 3 ? 120 : 60) << i;
        last = prompt;
        last.insert(last.end(), answer.begin(), answer.end());
    }
}

TEST(Drafter, ATextMayBeCutAndGoOnOtherwise) {
    for (const SourceKind kind : kTokenSources) {
        const auto drafter = drafter_of({SourceKind::Context, kind});
        std::mt19937 random(6);
        std::vector<TokenId> text = phrases(6, 100);
        drafter->observe({.text = text, .n_new = std::ssize(text)});
        for (int i = 0; i < 100; ++i) {
            TokenTree tree;
            tree.reset(text.back());
            drafter->propose(tree, {.budget = 16, .max_depth = 8, .text = text});
            text.push_back(static_cast<TokenId>(random() % 97));
            drafter->observe({.text = text, .n_new = 1, .tree = &tree, .accepted = {&kTreeRoot, 1}});
            if (i % 7 != 6) continue;
            text.resize(1 + random() % text.size());
            drafter->observe({.text = text, .n_new = 0});
            if (i % 2 == 0) continue;
            text.push_back(static_cast<TokenId>(random() % 97));
            drafter->observe({.text = text, .n_new = 1});
        }
    }
}

// Passes that take a second, and a tenth of one more for each guess, as planned.
constexpr double kBase = 0.9;
constexpr double kANode = 0.1;

std::unique_ptr<Drafter> timed_drafter(std::int64_t vocab) {
    DraftOptions options = options_of(kTokenSources);
    options.adapt_budget = true;
    DraftContext target = target_at();
    target.vocab = vocab;
    target.planned_seconds = [](std::int64_t n, std::int64_t) { return kBase + kANode * static_cast<double>(n); };
    return make_drafter(options, target);
}

TEST(Drafter, WhatCannotBeGuessedIsHardlySlowedDown) {
    // A prompt full of phrases, then tokens at random.
    constexpr std::uint32_t vocab = 5000;
    const auto drafter = timed_drafter(vocab);
    std::mt19937 random(8);
    std::vector<TokenId> answer(600);
    for (TokenId& token : answer) token = static_cast<TokenId>(random() % vocab);
    Future future = begin(*drafter, phrases(8, 400), answer);
    while (future.ahead.size() > 300) future.pass(*drafter, kBase, kANode);
    const double at_first = future.seconds;
    while (!future.ahead.empty()) future.pass(*drafter, kBase, kANode);
    EXPECT_LT(at_first, 1.1 * 300);
    EXPECT_LT(future.seconds - at_first, 1.01 * 300);
}

TEST(Drafter, WhatRepeatsIsGuessedInTreesThatPay) {
    const auto drafter = timed_drafter(kPhraseVocab);
    const std::vector<TokenId> prompt = phrases(8, 400);
    Future future = begin(*drafter, prompt, std::span(prompt).first(300));
    while (!future.ahead.empty()) future.pass(*drafter, kBase, kANode);
    EXPECT_LT(future.seconds, 0.5 * 300);
}

// The size of the first tree behind a prompt.
std::int64_t first_tree(Drafter& drafter, const std::vector<TokenId>& prompt) {
    Future future = begin(drafter, prompt, prompt);
    TokenTree tree;
    tree.reset(prompt.back());
    drafter.propose(tree, {.budget = 32, .max_depth = 32, .text = future.text});
    return tree.size();
}

TEST(Drafter, WhereTokensComeCheapTreesAreSmaller) {
    // What passes took is told to one drafter alone: the other takes a token to be worth a plain pass.
    const auto told = timed_drafter(kPhraseVocab);
    const auto untold = timed_drafter(kPhraseVocab);
    const std::vector<TokenId> prompt = phrases(8, 400);
    const std::vector<TokenId> answer = phrases(9, 300);
    const auto nodes_of = [&](Drafter& drafter, double base, double a_node) {
        std::int64_t n_nodes = 0;
        Future future = begin(drafter, prompt, answer);
        while (!future.ahead.empty()) n_nodes += future.pass(drafter, base, a_node);
        return static_cast<double>(n_nodes) / static_cast<double>(future.n_passes);
    };
    const double nodes_told = nodes_of(*told, kBase, kANode);
    const double nodes_untold = nodes_of(*untold, 0.0, 0.0);
    EXPECT_LT(nodes_told, 0.9 * nodes_untold);
    // After a reset nobody knows what a token takes.
    const std::int64_t at_that_pace = first_tree(*told, prompt);
    told->reset();
    const std::int64_t before_any = first_tree(*told, prompt);
    EXPECT_EQ(before_any, first_tree(*timed_drafter(kPhraseVocab), prompt));
    EXPECT_LT(at_that_pace, before_any);
}

TEST(Drafter, MemoryIsReported) {
    const auto drafter = drafter_of(kTokenSources);
    const std::size_t before = drafter->memory_bytes();
    static_cast<void>(replay(*drafter, recorded_phrases(9, 2000), 32));
    EXPECT_GT(drafter->memory_bytes(), before);
    EXPECT_LT(drafter->memory_bytes(), std::size_t{64} << 20);
}

TEST(Drafter, ASourceWithoutWhatItNeedsIsRefused) {
    const std::string nothing = error_text([] {});
    const auto refusal = [](const DraftOptions& options) {
        return error_text<RequestError>([&] { static_cast<void>(make_drafter(options, target_at())); });
    };
    EXPECT_NE(refusal(options_of({SourceKind::Corpus})), nothing);
    EXPECT_NE(refusal(options_of({SourceKind::Bigram})), nothing);
    EXPECT_NE(refusal(options_of({SourceKind::Unigram})), nothing);
    EXPECT_NE(refusal(options_of({SourceKind::Model})), nothing);
    const std::pair<TreeShape, SourceKind> without[] = {{TreeShape::NGrammys, SourceKind::Suffix},
                                                        {TreeShape::Cacheback, SourceKind::Context},
                                                        {TreeShape::Recycling, SourceKind::Context}};
    for (const auto& [shape, source] : without) {
        DraftOptions options = options_of({source});
        options.shape = shape;
        EXPECT_NE(refusal(options), nothing);
    }
}

}  // namespace
}  // namespace slipstream::draft
