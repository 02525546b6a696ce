// Views of a cache: what they keep, how they are filled while passes run, and that a view which keeps all is the cache.
#include "runtime/view/kv_view.h"

#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "runtime/view/view_builder.h"
#include "tests/support/tiny_model.h"
#include "tests/support/viewed_model.h"

namespace slipstream {
namespace {

constexpr std::int64_t kContext = ViewedModel::kContext;

std::vector<std::int32_t> chosen(std::vector<float> scores, const GroupBudget& budget) {
    std::vector<std::int32_t> order;
    std::vector<std::int32_t> kept(static_cast<std::size_t>(budget.n_kept));
    choose_groups(scores, budget, order, kept);
    return kept;
}

using Groups = std::vector<std::int32_t>;

TEST(ViewSelection, SinksAndTheLastAreKeptAndTheBestOfTheRest) {
    const std::vector<float> scores{0, 5, 1, 9, 2, 9, 3, 0};
    EXPECT_EQ(chosen(scores, {.n_groups = 8, .n_kept = 4, .n_first = 1, .n_last = 1}), (Groups{0, 3, 5, 7}));
    EXPECT_EQ(chosen(scores, {.n_groups = 8, .n_kept = 5, .n_first = 1, .n_last = 2}), (Groups{0, 3, 5, 6, 7}));
    EXPECT_EQ(chosen(scores, {.n_groups = 8, .n_kept = 8, .n_first = 2, .n_last = 2}),
              (Groups{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(ViewSelection, TiesGoToTheLowerGroupAndNoNumberCountsLeast) {
    EXPECT_EQ(chosen({1, 1, 1, 1, 1}, {.n_groups = 5, .n_kept = 2}), (Groups{0, 1}));
    const float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(chosen({nan, 0, nan, 1, -1}, {.n_groups = 5, .n_kept = 3}), (Groups{1, 3, 4}));
}

TEST(ViewSelection, WhatFollowsAWantedGroupIsWantedByHalf) {
    const std::vector<float> scores{0, 8, 1, 3, 9, 0};
    EXPECT_EQ(chosen(scores, {.n_groups = 6, .n_kept = 3}), (Groups{1, 3, 4}));
    EXPECT_EQ(chosen(scores, {.n_groups = 6, .n_kept = 3, .of_next = 0.5F}), (Groups{1, 4, 5}));
    EXPECT_EQ(chosen(scores, {.n_groups = 6, .n_kept = 4, .of_next = 0.5F}), (Groups{1, 2, 4, 5}));
    // Sinks are kept anyway, whatever is behind them: what they draw says nothing of it.
    EXPECT_EQ(chosen({90, 1, 2, 0}, {.n_groups = 4, .n_kept = 2, .n_first = 1, .of_next = 0.5F}), (Groups{0, 2}));
}

TEST(ViewSelection, TheLastComeBeforeTheFirstWhereRoomIsShort) {
    EXPECT_EQ(chosen({}, {.n_groups = 6, .n_kept = 2, .n_first = 3, .n_last = 9}), (Groups{4, 5}));
    EXPECT_EQ(chosen({}, {.n_groups = 6, .n_kept = 3, .n_first = 3, .n_last = 2}), (Groups{0, 4, 5}));
}

TEST(ViewSelection, HeadsArePooledByTheirShares) {
    // Two heads, three groups a row of four: the second head's logs are higher, its shares are not.
    const std::vector<float> scores{std::log(1.0F),  std::log(3.0F),  std::log(4.0F),  99.0F,
                                    std::log(60.0F), std::log(20.0F), std::log(20.0F), 99.0F};
    std::vector<float> pooled(3, 7.0F);
    pool_scores(GroupScore::Mass, scores, 2, 4, 0.0F, pooled);
    EXPECT_NEAR(pooled[0], 0.125F + 0.6F, 1e-6F);
    EXPECT_NEAR(pooled[1], 0.375F + 0.2F, 1e-6F);
    EXPECT_NEAR(pooled[2], 0.5F + 0.2F, 1e-6F);
    pool_scores(GroupScore::Mass, scores, 2, 4, 0.5F, pooled);
    EXPECT_NEAR(pooled[0], 1.5F * 0.725F, 1e-6F);
    pooled[0] = std::numeric_limits<float>::quiet_NaN();
    pool_scores(GroupScore::Mass, scores, 2, 4, 0.5F, pooled);
    EXPECT_NEAR(pooled[0], 0.725F, 1e-6F) << "what is no number is forgotten";
    // A sink as heavy as all keys of the first head, and one that weighs nothing.
    const std::vector<float> sinks{std::log(8.0F), -100.0F};
    pool_scores(GroupScore::Mass, scores, 2, 4, 0.0F, pooled, sinks);
    EXPECT_NEAR(pooled[0], 0.0625F + 0.6F, 1e-6F);
    EXPECT_NEAR(pooled[2], 0.25F + 0.2F, 1e-6F);
    pool_scores(GroupScore::Mean, std::vector<float>{1, 2, 10, 20}, 2, 2, 0.0F, std::span(pooled).first(2));
    EXPECT_EQ(pooled[0], 11.0F);
    EXPECT_EQ(pooled[1], 22.0F);
}

// On the CPU, its KV in host memory where not all of it is resident.
struct Cpu {
    CpuDevice device{CpuDeviceOptions{.n_threads = 1}};
};
struct Viewed : Cpu, ViewedModel {
    Viewed(const ModelFiles& files, const ViewOptions& options, std::vector<std::int64_t> resident_chunks = {})
        : ViewedModel(files, device, options, std::move(resident_chunks)) {}
};

const ViewOptions kWhole{.budget_tokens = kContext, .rebuild_tokens = 100, .growth_tokens = 128};

TEST(KvView, AViewOfTheWholeTextGivesTheBitsOfTheCache) {
    const auto plain = make_tiny_model({.n_layers = 3});
    const auto with_sinks = make_tiny_model({.n_layers = 3, .biases = true, .n_experts = 5, .gpt_oss = true});
    for (const std::vector<std::int64_t>& resident : {std::vector<std::int64_t>{}, {0, 0, 0}, {1, 0, 2}, {8, 0, 8}}) {
        for (const std::int64_t n : {5, 300, 1100}) {
            Viewed viewed(n == 300 ? *with_sinks : *plain, kWhole, resident);
            viewed.feed(n);
            EXPECT_EQ(viewed.view.n_text(), 0) << "a text that is fed builds nothing";
            const int n_passes = viewed.run_until_built();
            // What has all of a layer at hand builds in one pass, what streams scores before it copies.
            EXPECT_EQ(n_passes, resident.empty() ? 1 : 2) << n;
            EXPECT_TRUE(viewed.same_logits()) << n;
            for (int i = 0; i < 60; ++i) viewed.run(5, 1 + i % 4);  // it grows, and is built anew meanwhile
            viewed.run_until_built();
            EXPECT_GT(viewed.builder.n_built(), 1);
            EXPECT_TRUE(viewed.same_logits()) << n;
        }
    }
}

// A layer with a window sees its last positions alone, which stand in a view as far from each other as in the text. The
// view's slots are moved by whole chunks here, so that even the order of sums is the same.
TEST(KvView, ALayerWithAWindowKeepsItsEnd) {
    const auto files = make_tiny_model({.n_layers = 1, .window = 300});
    for (const std::vector<std::int64_t>& resident : {std::vector<std::int64_t>{}, {0}}) {
        Viewed viewed(*files, {.budget_tokens = 512, .rebuild_tokens = 500, .growth_tokens = 500}, resident);
        viewed.feed(1530 - (resident.empty() ? 0 : 3));
        viewed.run_until_built();
        EXPECT_EQ(viewed.view.text_offset(), 1024);
        EXPECT_TRUE(viewed.same_logits());
        for (int i = 0; i < 60; ++i) viewed.run(5, 3);
        EXPECT_EQ(viewed.builder.n_built(), 1);
        EXPECT_TRUE(viewed.same_logits());
    }
}

TEST(KvView, AViewKeepsItsBudgetAndGrowsByWhatIsCommitted) {
    const auto files = make_tiny_model({});
    Viewed viewed(*files, {.budget_tokens = 128, .rebuild_tokens = 40, .growth_tokens = 60});
    viewed.feed(1003);
    viewed.run(6, 3);
    EXPECT_EQ(viewed.view.n_text(), 1006);
    EXPECT_EQ(viewed.view.n_slots(), 128 - (1008 - 1003) + 3);
    for (int i = 0; i < 12; ++i) viewed.run(6, 3);
    EXPECT_EQ(viewed.view.n_slots(), 123 + 13 * 3);
    EXPECT_EQ(viewed.builder.n_built(), 1);
    for (int i = 0; i < 2; ++i) viewed.run(6, 3);  // 1003 + 40 have come by
    EXPECT_EQ(viewed.builder.n_built(), 2);
    EXPECT_EQ(viewed.view.n_text(), viewed.cache.n_committed());
    EXPECT_LE(viewed.view.n_slots(), 128 + 6);
}

// What earlier passes asked for counts as the half-life says: where it is 0, a builder that begins anew before the last
// pass chooses the same.
TEST(KvView, WhatEarlierPassesAskedForFades) {
    const auto files = make_tiny_model({.n_layers = 3});
    for (const std::vector<std::int64_t>& resident : {std::vector<std::int64_t>{}, {0, 0, 0}}) {
        for (const double half_life : {0.0, 100.0, std::numeric_limits<double>::infinity()}) {
            const auto last_view = [&](bool forgets) {
                Viewed viewed(*files,
                              {.budget_tokens = 96,
                               .recent_tokens = 8,
                               .rebuild_tokens = 8,
                               .half_life_tokens = half_life,
                               .growth_tokens = 40},
                              resident);
                viewed.feed(1000);
                for (int i = 0; i < 6; ++i) viewed.run(8, 8);
                if (forgets) viewed.builder.restart();
                // Where KV streams one pass scores, and the next copies.
                for (int i = 0; i < (resident.empty() ? 1 : 2); ++i) viewed.run(8, 8);
                return viewed.logits_over_view();
            };
            EXPECT_EQ(last_view(true) == last_view(false), half_life == 0.0) << half_life;
        }
    }
}

TEST(KvView, AQueryScoresEveryEightTokens) {
    const auto files = make_tiny_model({});
    Viewed viewed(*files, {.budget_tokens = 128, .rebuild_tokens = 40, .growth_tokens = 60});
    viewed.feed(1000);
    viewed.run(6, 3);
    EXPECT_EQ(viewed.builder.n_built(), 1);
    viewed.run(6, 4);
    EXPECT_EQ(viewed.builder.begin_pass(0, true), nullptr) << "7 tokens since";
    viewed.run(6, 1);
    EXPECT_EQ(viewed.builder.begin_pass(0, true), &viewed.builder);
    viewed.builder.end_pass(viewed.forward->exec(), false);
    // One that is built once is scored once.
    Viewed once(*files, {.budget_tokens = 128, .rebuild_tokens = 0, .growth_tokens = 600});
    once.feed(1000);
    for (int i = 0; i < 20; ++i) once.run(6, 3);
    EXPECT_EQ(once.builder.n_built(), 1);
    EXPECT_EQ(once.builder.begin_pass(0, true), nullptr);
}

// A pass copies of a layer with a window only the chunks that its window reaches. A text that is cut further back needs
// slots that were not copied.
TEST(KvView, ACutThatMovesAWindowBackEndsTheView) {
    const auto files = make_tiny_model({.n_layers = 3, .window = 300, .biases = true});
    for (const std::vector<std::int64_t>& resident : {std::vector<std::int64_t>{}, {0, 0, 0}, {1, 5, 0}})
        for (const std::int64_t n_cut : {0, 1, 80, 81, 82, 83, 200, 300, 700}) {
            Viewed viewed(*files, kWhole, resident);
            viewed.feed(1400);
            viewed.run_until_built();
            const std::int64_t n_built = viewed.cache.n_committed() - n_cut;
            ASSERT_GT(viewed.view.n_text(), 0);
            viewed.target->truncate(n_built);
            // The window of the pass that built it began in chunk 4.
            EXPECT_EQ(viewed.view.n_text(), n_built >= 4 * kChunkTokens + 299 ? n_built : 0) << n_cut;
            if (viewed.view.n_text() > 0) {
                EXPECT_TRUE(viewed.same_logits()) << n_cut;
            }
        }
}

// Of 32 tokens 16 are sinks: 16 are left for the last ones, whatever recent_tokens says.
TEST(KvView, ACutIntoTheSinksOfAWindowEndsTheView) {
    const auto files = make_tiny_model({.n_layers = 2});
    for (const std::int64_t n_text : {985, 984, 980, 970}) {
        Viewed viewed(*files, {.kind = ViewKind::Window, .budget_tokens = 32, .recent_tokens = 24, .growth_tokens = 8});
        viewed.feed(1000);
        ASSERT_EQ(viewed.run_until_built(), 1);
        viewed.target->truncate(n_text);
        EXPECT_EQ(viewed.view.n_text(), n_text > 984 ? n_text : 0);
    }
}

TEST(KvView, ATextThatIsCutCutsItsViewOrEndsIt) {
    const auto files = make_tiny_model({});
    Viewed viewed(*files, {.budget_tokens = 256, .recent_tokens = 64, .rebuild_tokens = 500, .growth_tokens = 500});
    viewed.feed(800);
    viewed.run(4, 4);
    const std::int64_t n_slots = viewed.view.n_slots();
    viewed.target->truncate(790);
    EXPECT_EQ(viewed.view.n_text(), 790);
    EXPECT_EQ(viewed.view.n_slots(), n_slots - 14);
    viewed.run(4, 2);
    EXPECT_EQ(viewed.view.n_text(), 792);
    viewed.target->truncate(500);  // among what was left out
    EXPECT_EQ(viewed.view.n_text(), 0);
    viewed.run(4, 2);
    EXPECT_EQ(viewed.view.n_text(), 502);
    viewed.target->truncate(0);
    EXPECT_EQ(viewed.view.n_text(), 0);
    viewed.feed(100);  // a text shorter than the budget is kept whole
    EXPECT_EQ(viewed.run_until_built(), 1);
    EXPECT_EQ(viewed.view.text_offset(), 0);
    EXPECT_TRUE(viewed.same_logits());
}

TEST(KvView, AViewThatHasNoRoomLeftStandsForNothingUntilItIsBuiltAnew) {
    const auto files = make_tiny_model({});
    for (const std::int64_t rebuild : {1000, 0}) {
        Viewed viewed(*files, {.budget_tokens = 128, .rebuild_tokens = rebuild, .growth_tokens = 8});
        viewed.feed(500);
        viewed.run(4, 4);
        EXPECT_EQ(viewed.view.n_text(), 504);
        viewed.run(16, 16);
        EXPECT_EQ(viewed.view.n_text(), 0);
        viewed.run(4, 1);
        EXPECT_EQ(viewed.view.n_text(), 521) << rebuild;
    }
}

TEST(KvView, InStepsItIsBuiltByTheSamePassWhereverKvLies) {
    const auto files = make_tiny_model({.n_layers = 3});
    for (const std::vector<std::int64_t>& resident : {std::vector<std::int64_t>{}, {0, 0, 0}}) {
        ViewOptions options = kWhole;
        options.in_steps = true;
        Viewed viewed(*files, options, resident);
        viewed.feed(300);
        EXPECT_EQ(viewed.run_until_built(), 2);
        EXPECT_TRUE(viewed.same_logits());
    }
}

TEST(KvView, APassThatIsGivenUpLeavesNoHalfOfAView) {
    const auto files = make_tiny_model({.n_layers = 3});
    for (const std::vector<std::int64_t>& resident : {std::vector<std::int64_t>{}, {0, 0, 0}}) {
        Viewed viewed(*files, kWhole, resident);
        viewed.feed(700);
        const std::atomic<bool> cancel{true};
        for (int i = 0; i < 3; ++i) {
            viewed.run(6, 0, Viewed::Wanted::Logits, &cancel);
            EXPECT_EQ(viewed.view.n_text(), 0);
            if (!resident.empty() && i == 1) viewed.run(6, 3);  // scored: what is given up next is copying
        }
        viewed.run_until_built();
        EXPECT_TRUE(viewed.same_logits());
    }
}

}  // namespace
}  // namespace slipstream
