// Views of a cache: what they keep, how they are filled while passes run, and that a view which keeps all is the cache.
#include "runtime/view/kv_view.h"

#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "runtime/view/view_builder.h"
#include "tests/support/tiny_model.h"
#include "tests/support/view_slots.h"
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

// Views with pages. The models: two kv heads; sinks and biases; a sliding window in every second layer, whose pages
// have the rest of the window; Q8 rows, which pages round once more.
class PagedView : public testing::TestWithParam<int> {
protected:
    [[nodiscard]] static std::unique_ptr<ModelFiles> files() {
        switch (GetParam()) {
            case 1:
                return make_tiny_model({.n_layers = 3, .biases = true, .n_experts = 5, .gpt_oss = true});
            case 2:
                return make_tiny_model({.n_layers = 3, .window = 300, .biases = true});
            case 3:
                return make_tiny_model({.n_layers = 3, .n_q_heads = 6, .n_kv_heads = 3, .kv_dtype = DType::Q8_0});
            default:
                return make_tiny_model({.n_layers = 3});
        }
    }
    // Checks all layers, and returns the rows that are in pages.
    static std::int64_t check(Viewed& viewed) {
        std::int64_t n_paged = 0;
        for (std::int64_t layer = 0; layer < viewed.cache.n_layers(); ++layer) {
            ViewSlots slots(viewed, layer);
            EXPECT_EQ(slots.problem(), "");
            n_paged += slots.n_paged();
        }
        return n_paged;
    }
};

TEST_P(PagedView, HoldsWhatIsChosenInTheOrderOfTheText) {
    const auto model = files();
    for (const std::vector<std::int64_t>& resident : {std::vector<std::int64_t>{}, {0, 0, 0}, {1, 0, 2}, {8, 0, 8}}) {
        // 54 groups in pages: the last page of a head is not full.
        Viewed viewed(*model,
                      {.type = ViewType::Q4,
                       .budget_tokens = 512,
                       .recent_tokens = 64,
                       .rebuild_tokens = 40,
                       .growth_tokens = 60},
                      resident);
        viewed.feed(1403);
        std::int64_t n_valid = 0;
        for (int i = 0; i < 30; ++i) {
            viewed.run(6, 1 + i % 5);
            if (viewed.view.n_text() == 0) continue;
            ++n_valid;
            EXPECT_EQ(viewed.view.n_text(), viewed.cache.n_committed());
            EXPECT_LE(viewed.view.n_slots(), 16 + 64 + 60);
            EXPECT_GT(check(viewed), 432);
        }
        EXPECT_GE(n_valid, 25);
        EXPECT_GT(viewed.builder.n_built(), 2);
    }
}

// Of a text that a view keeps whole, no position is missing, and only rounding separates it from the cache.
TEST_P(PagedView, OfTheWholeTextIsNearTheCache) {
    if (GetParam() == 2) GTEST_SKIP() << "pages of a window have the window alone";
    const auto model = files();
    const ViewOptions whole{.type = ViewType::Q4,
                            .budget_tokens = kContext,
                            .recent_tokens = 128,
                            .rebuild_tokens = 64,
                            .growth_tokens = 128};
    ViewOptions rows_alone = whole;
    rows_alone.kind = ViewKind::Window;
    rows_alone.type = ViewType::Rows;
    rows_alone.budget_tokens = whole.row_tokens();
    const auto distance = [&](const ViewOptions& options) {
        Viewed viewed(*model, options, {0, 0, 0});
        viewed.feed(1500);
        viewed.run_until_built();
        if (options.type == ViewType::Q4) {
            const std::int64_t n_heads = viewed.cache.layout(0).n_kv_heads;
            EXPECT_EQ(check(viewed), 3 * n_heads * (viewed.view.n_text() - viewed.view.n_slots()));
        }
        const std::vector<float> seen = viewed.logits_over_view();
        viewed.target->build_views_with({});
        const std::vector<float> whole_text = logits_over_cache(*viewed.target);
        double sum = 0.0;
        for (std::size_t i = 0; i < seen.size(); ++i) sum += std::abs(seen[i] - whole_text[i]);
        return sum / static_cast<double>(seen.size());
    };
    const double by_rounding = distance(whole);
    EXPECT_GT(by_rounding, 0.0);
    EXPECT_LT(4.0 * by_rounding, distance(rows_alone));
}

TEST_P(PagedView, ACutAmongTheRowsCutsItAndOneAmongPagesEndsIt) {
    const auto model = files();
    for (const std::int64_t n_cut : {1, 60, 123, 124, 125, 300, 1000}) {
        Viewed viewed(*model,
                      {.type = ViewType::Q4,
                       .budget_tokens = 512,
                       .recent_tokens = 128,
                       .rebuild_tokens = 500,
                       .growth_tokens = 60},
                      {});
        viewed.feed(1404);  // 128 - 4 last rows, since the last group is not full
        ASSERT_EQ(viewed.run_until_built(), 1);
        const std::int64_t n = viewed.cache.n_committed() - 3 - n_cut;
        viewed.target->truncate(n);
        EXPECT_EQ(viewed.view.n_text(), n_cut < 124 ? n : 0) << n_cut;
        if (viewed.view.n_text() > 0) {
            EXPECT_GT(check(viewed), 0);
            viewed.run(6, 4);
            EXPECT_GT(check(viewed), 0);
        }
    }
}

// Passes that are the same over streamed KV and over resident KV, bit for bit.
TEST_P(PagedView, InStepsItIsTheSameWhereverKvLies) {
    const auto model = files();
    std::vector<float> expected;
    for (const std::vector<std::int64_t>& resident : {std::vector<std::int64_t>{}, {0, 0, 0}, {1, 0, 2}}) {
        Viewed viewed(*model,
                      {.type = ViewType::Q4,
                       .budget_tokens = 640,
                       .recent_tokens = 64,
                       .rebuild_tokens = 16,
                       .in_steps = true,
                       .growth_tokens = 60},
                      GetParam() == 2 && resident.size() == 3 ? std::vector<std::int64_t>{0, 0, 0} : resident);
        viewed.feed(1400);
        std::vector<float> found;
        for (int i = 0; i < 20; ++i) {
            viewed.run(6, 3);
            if (viewed.view.n_text() == 0) continue;
            const std::vector<float> logits = viewed.logits_over_view();
            found.insert(found.end(), logits.begin(), logits.end());
        }
        EXPECT_FALSE(found.empty());
        if (resident.empty()) expected = found;
        EXPECT_EQ(found, expected);
    }
}

// A view that keeps everything scores nothing, and a build writes only what left the last rows since, to the same
// pages.
TEST_P(PagedView, OfTheWholeTextGrowsByWhatLeavesTheRows) {
    const auto model = files();
    for (const std::vector<std::int64_t>& resident : {std::vector<std::int64_t>{}, {0, 0, 0}}) {
        Viewed viewed(*model,
                      {.type = ViewType::Q4,
                       .budget_tokens = kContext,
                       .recent_tokens = 128,
                       .rebuild_tokens = 64,
                       .growth_tokens = 128},
                      resident);
        viewed.feed(1000);
        ASSERT_EQ(viewed.run_until_built(), 1) << "no pass scores first";
        EXPECT_EQ(viewed.builder.n_scored(), 0);
        const std::int64_t n_heads = viewed.cache.layout(0).n_kv_heads;
        const PageRange first = viewed.builder.pages_of(0, n_heads - 1);
        for (int i = 0; i < 40; ++i) {
            const std::int64_t n_built = viewed.builder.n_built();
            viewed.run(8, 1 + i % 8);
            ASSERT_GT(viewed.view.n_text(), 0);
            check(viewed);
            if (viewed.builder.n_built() == n_built) continue;
            // Up to 71 tokens, and up to 56 of a page that was not full.
            EXPECT_LE(std::ssize(viewed.builder.chosen_pages(0)), n_heads * 16);
            EXPECT_EQ(viewed.builder.pages_of(0, n_heads - 1).first_page, first.first_page);
        }
        EXPECT_GT(viewed.builder.n_built(), 2);
        for (const std::int64_t n_text : {1060, 700, 50, 1200}) {  // below what pages hold
            if (n_text < viewed.cache.n_committed()) viewed.target->truncate(n_text);
            if (viewed.cache.n_committed() < 150) viewed.feed(900);
            const std::atomic<bool> cancel{true};
            viewed.run(6, 0, Viewed::Wanted::Logits, &cancel);
            EXPECT_LE(viewed.run_until_built(), 2);
            check(viewed);
        }
    }
}

// A text that is cut and goes on with other tokens: no page keeps what it held for the cut ones, where pages are
// appended to and where they are chosen anew.
TEST_P(PagedView, AfterACutPagesHoldTheRowsOfTheNewTokens) {
    const auto model = files();
    for (const std::int64_t budget_tokens : {kContext, std::int64_t{512}})
        for (const std::vector<std::int64_t>& resident : {std::vector<std::int64_t>{}, {0, 0, 0}}) {
            Viewed viewed(*model,
                          {.type = ViewType::Q4,
                           .budget_tokens = budget_tokens,
                           .recent_tokens = 128,
                           .rebuild_tokens = 64,
                           .growth_tokens = 128},
                          resident);
            viewed.feed(1000);
            viewed.run_until_built();
            const std::int64_t n_text = viewed.cache.n_committed();
            for (const std::int64_t n_cut : {200, 457, 900}) {
                const auto row_before = [&] {
                    std::vector<std::byte> chunk(viewed.cache.layout(0).chunk_bytes());
                    viewed.cache.read_chunk(viewed.forward->exec(), 0, (n_text - n_cut) / kChunkTokens, chunk.data());
                    return chunk;
                };
                const std::vector<std::byte> before = row_before();
                viewed.target->truncate(n_text - n_cut);
                EXPECT_EQ(viewed.view.n_text(), 0) << n_cut;
                viewed.other_text += 1000003;
                viewed.feed(n_text - viewed.cache.n_committed());
                EXPECT_NE(row_before(), before) << "the rows differ";
                viewed.run_until_built();
                EXPECT_GT(check(viewed), 0);
                viewed.target->truncate(n_text);
            }
        }
}

// What a pass is said to read is what pages hold, not what they have room for, as so many rows.
TEST_P(PagedView, CountsWhatPagesHold) {
    const auto model = files();
    Viewed viewed(
        *model,
        {.type = ViewType::Q4, .budget_tokens = 1024, .recent_tokens = 64, .rebuild_tokens = 500, .growth_tokens = 60},
        {0, 0, 0});
    viewed.feed(700);
    viewed.run_until_built();
    std::int64_t n_slots = 0;
    std::int64_t n_heads = 0;
    for (std::int64_t layer = 0; layer < 3; ++layer) {
        std::size_t bytes = 0;
        for (std::int64_t head = 0; head < viewed.cache.layout(layer).n_kv_heads; ++head, ++n_heads) {
            const std::int64_t n_pages = (viewed.builder.pages_of(layer, head).n_slots + kPageSlots - 1) / kPageSlots;
            n_slots += n_pages * kPageSlots;
            bytes += static_cast<std::size_t>(n_pages) * viewed.view.page_bytes(layer);
        }
        EXPECT_GT(bytes, 0U);
        EXPECT_EQ(viewed.view.pages(layer).n_bytes, bytes);
    }
    const auto of_pages = static_cast<double>(viewed.view.n_read() - viewed.view.n_slots());
    const double mean = static_cast<double>(n_slots) / static_cast<double>(n_heads);
    const KvLayout layout = viewed.cache.layout(0);
    EXPECT_NEAR(of_pages,
                mean * static_cast<double>(row_bytes_like_page(DeviceKind::Cpu, layout)) /
                    static_cast<double>(2 * layout.step_bytes()),
                2.0);
}

// A pass that shows the builder no KV fills no page: then there is no view.
TEST_P(PagedView, APassThatShowsNoKvLeavesNoView) {
    const auto model = files();
    Viewed viewed(*model,
                  {.type = ViewType::Q4,
                   .budget_tokens = kContext,
                   .recent_tokens = 128,
                   .rebuild_tokens = 64,
                   .growth_tokens = 128},
                  {0, 0, 0});
    viewed.feed(700);
    ASSERT_NE(viewed.builder.begin_pass(0, false), nullptr);
    viewed.builder.end_pass(viewed.forward->exec(), true);
    EXPECT_EQ(viewed.view.n_text(), 0);
    EXPECT_EQ(viewed.builder.n_built(), 0);
    EXPECT_LE(viewed.run_until_built(), 2);
    EXPECT_GT(check(viewed), 0);
}

INSTANTIATE_TEST_SUITE_P(Models, PagedView, testing::Range(0, 4));

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
