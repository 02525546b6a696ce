// Views over several devices, of their layers or of their kv heads: together they keep what one device keeps (with
// layers bit for bit), stand for a text together or not at all, and what fails on one of them is told by its name and
// costs nothing.
#include "runtime/ranks/view_passes.h"

#include <algorithm>
#include <random>
#include <set>
#include <tuple>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu_faults.h"
#include "tests/support/target_texts.h"
#include "tests/support/tiny_model.h"
#include "tests/support/viewed_model.h"
#include "tests/support/viewed_split.h"

namespace slipstream {
namespace {

constexpr std::int64_t kLayers = 4;
const ViewOptions kSmall{.budget_tokens = 256, .recent_tokens = 64, .rebuild_tokens = 16, .growth_tokens = 48};
const ViewOptions kWhole{.budget_tokens = 2048, .rebuild_tokens = 500, .growth_tokens = 128};

void feed(Target& target, std::int64_t n) {
    for (std::int64_t left = n; left > 0; left -= 64)
        run_chain(target, std::min<std::int64_t>(left, 64), std::min<std::int64_t>(left, 64), Wanted::Nothing);
}

class LayersView : public testing::Test {
protected:
    static ViewedSplitOptions options(std::vector<std::int64_t> n_layers, const ViewOptions& view, KvStreams streams) {
        return {.parts = std::move(n_layers), .view = view, .streams = streams};
    }
    static std::vector<std::int64_t> resident(KvStreams streams) {
        return streams == KvStreams::Nowhere ? std::vector<std::int64_t>{} : std::vector<std::int64_t>(kLayers, 0);
    }
    static void expect_alike(ViewedModel& one, ViewedSplit& several) {
        ASSERT_EQ(several.over_view->n_text(), one.view.n_text());
        for (const auto& rank : several.ranks) {
            ASSERT_EQ(rank->view.n_text(), one.view.n_text());
            ASSERT_EQ(rank->view.n_slots(), one.view.n_slots());
            ASSERT_EQ(rank->builder.n_built(), one.builder.n_built());
        }
        for (std::int64_t layer = 0; layer < kLayers; ++layer) {
            const auto same = [](const GroupMove& a, const GroupMove& b) {
                return std::tie(a.head, a.from, a.to) == std::tie(b.head, b.from, b.to);
            };
            ASSERT_TRUE(std::ranges::equal(several.chosen(layer), one.builder.chosen(layer), same)) << layer;
        }
        if (one.view.n_text() > 0) {
            ASSERT_TRUE(same_bits(logits_over_view(*several.over_view), one.logits_over_view()));
        }
    }
    /// Rounds of passes, a cut, and more of them.
    static void expect_alike_throughout(ViewedModel& one, ViewedSplit& several) {
        one.feed(1500);
        feed(*several.target, 1500);
        for (int i = 0; i < 24 && !HasFatalFailure(); ++i) {
            const std::int64_t n_kept = 1 + i % 4;
            one.run(6, n_kept);
            run_chain(*several.target, 6, n_kept);
            if (i == 12 || i == 18) {  // among the last, and among what was left out
                const std::int64_t n = one.cache.n_committed() - (i == 12 ? 5 : 700);
                one.target->truncate(n);
                several.target->truncate(n);
            }
            expect_alike(one, several);
        }
        EXPECT_GT(one.builder.n_built(), 2);
    }

    std::unique_ptr<ModelFiles> files_ = make_tiny_model({.n_layers = kLayers, .biases = true});
};

TEST_F(LayersView, KeepsWhatOneDeviceKeeps) {
    const auto window = make_tiny_model({.n_layers = kLayers, .window = 300});
    for (const KvStreams streams : {KvStreams::Nowhere, KvStreams::Everywhere}) {
        for (const std::vector<std::int64_t>& split : {std::vector<std::int64_t>{2, 2}, {3, 1}, {1, 2, 1}}) {
            SCOPED_TRACE(testing::PrintToString(split) + (streams == KvStreams::Nowhere ? "" : ", KV streams"));
            ViewOptions view = kSmall;
            view.kind = split.size() == 3 ? ViewKind::Window : ViewKind::Retrieval;
            view.score = split[0] == 3 ? GroupScore::Mean : GroupScore::Mass;
            view.in_steps = split[0] == 3;
            const ModelFiles& files = split[0] == 2 ? *window : *files_;
            CpuDevice device(CpuDeviceOptions{.n_threads = 1});
            ViewedModel one(files, device, view, resident(streams));
            ViewedSplit several(files, options(split, view, streams));
            expect_alike_throughout(one, several);
        }
    }
}

// As a device that streams does: none of a layer's KV is whole on one of them.
TEST_F(LayersView, OneThatStreamsHasAllBuildInTwoPasses) {
    CpuDevice device(CpuDeviceOptions{.n_threads = 1});
    ViewedModel one(*files_, device, kSmall, resident(KvStreams::Everywhere));
    ViewedSplit several(*files_, options({2, 2}, kSmall, KvStreams::BehindTheFirst));
    expect_alike_throughout(one, several);
}

// Heads of a split choose by scores of their own bits: nearly always what one device chooses for them, and each by
// itself.
TEST(TensorView, HeadsKeepWhatTheyKeepOnOneDevice) {
    const auto files = make_tiny_model({.n_layers = kLayers, .n_q_heads = 6, .n_kv_heads = 3, .biases = true});
    for (const std::vector<std::int64_t>& split : {std::vector<std::int64_t>{2, 1}, {1, 1, 1}}) {
        CpuDevice device(CpuDeviceOptions{.n_threads = 1});
        ViewedModel one(*files, device, kSmall, {});
        ViewedSplit several(*files, {.parts = split, .view = kSmall, .kind = SplitKind::Tensor});
        one.feed(1500);
        feed(*several.target, 1500);
        std::int64_t n_moves = 0, n_same = 0;
        for (int i = 0; i < 24; ++i) {
            one.run(6, 3);
            run_chain(*several.target, 6, 3);
            ASSERT_EQ(several.over_view->n_text(), one.view.n_text());
            for (std::int64_t layer = 0; layer < kLayers; ++layer) {
                using Kept = std::set<std::pair<std::int64_t, std::int64_t>>;  // head, group
                Kept expected, found;
                for (const GroupMove& move : one.builder.chosen(layer)) expected.insert({move.head, move.from});
                std::int64_t first = 0;
                for (std::size_t rank = 0; rank < split.size(); first += split[rank++])
                    for (const GroupMove& move : several.ranks[rank]->builder.chosen(layer))
                        found.insert({first + move.head, move.from});
                ASSERT_EQ(found.size(), expected.size());
                n_moves += std::ssize(expected);
                n_same += std::ranges::count_if(expected, [&](const auto& kept) { return found.contains(kept); });
            }
        }
        EXPECT_GT(several.ranks.front()->builder.n_built(), 2);
        EXPECT_GT(n_same, n_moves * 99 / 100) << n_moves;
    }
}

// E1 of a split: what views keep hangs on no placement where they are built in steps.
TEST(TensorView, PlacementChangesNothing) {
    const auto files = make_tiny_model({.n_layers = kLayers, .n_q_heads = 6, .n_kv_heads = 3, .window = 300});
    ViewOptions view = kSmall;
    view.in_steps = true;
    std::vector<float> expected;
    for (const KvStreams streams : {KvStreams::Nowhere, KvStreams::Everywhere, KvStreams::BehindTheFirst}) {
        ViewedSplit several(*files, {.parts = {2, 1}, .view = view, .streams = streams, .kind = SplitKind::Tensor});
        feed(*several.target, 1500);
        std::vector<float> found;
        for (int i = 0; i < 24; ++i) {
            run_chain(*several.target, 6, 1 + i % 4);
            if (several.over_view->n_text() == 0) continue;
            const std::vector<float> logits = logits_over_view(*several.over_view);
            found.insert(found.end(), logits.begin(), logits.end());
        }
        EXPECT_GT(found.size(), 10 * kMostViewRows * kTinyVocab);
        if (streams == KvStreams::Nowhere) expected = found;
        EXPECT_TRUE(same_bits(found, expected)) << static_cast<int>(streams);
    }
}

class RankView : public testing::TestWithParam<SplitKind> {
protected:
    /// Over two devices, half of it each.
    [[nodiscard]] static ViewedSplitOptions halves(const ViewOptions& view, KvStreams streams) {
        const std::int64_t half = GetParam() == SplitKind::Layers ? kLayers / 2 : 1;
        return {.parts = {half, half}, .view = view, .streams = streams, .kind = GetParam()};
    }

    std::unique_ptr<ModelFiles> files_ = make_tiny_model({.n_layers = kLayers, .biases = true});
};

TEST_P(RankView, OfTheWholeTextGivesTheBitsOfTheCaches) {
    for (const KvStreams streams : {KvStreams::Nowhere, KvStreams::Everywhere, KvStreams::BehindTheFirst}) {
        ViewedSplit several(*files_, halves(kWhole, streams));
        feed(*several.target, 1000);
        const std::atomic<bool> cancel{true};
        for (int i = 0; i < 6; ++i) {
            const bool given_up = i == 0 || i == 2;
            run_chain(*several.target, 6, given_up ? 0 : 3, Wanted::Logits, given_up ? &cancel : nullptr);
            EXPECT_TRUE(several.over_view->n_text() == 0 ||
                        several.over_view->n_text() == several.target->n_committed());
        }
        ASSERT_EQ(several.over_view->n_text(), several.target->n_committed());
        several.follow(false);
        EXPECT_TRUE(same_bits(logits_over_view(*several.over_view), logits_over_cache(*several.target)));
        several.follow(true);
        run_chain(*several.target, 6, 4);  // it grows by rows of each cache
        several.follow(false);
        EXPECT_TRUE(same_bits(logits_over_view(*several.over_view), logits_over_cache(*several.target)));
    }
}

// A prompt by layers: each device builds in that pass, also one whose ring holds no whole layer, unless the view keeps
// fewer of the last tokens than a prefill chunk has; then it builds a pass later. With rebuild_tokens = 0 a device
// drops its scores when it has built.
TEST(LayersViewOfAPrompt, IsReadySoonWhateverStreams) {
    const auto files = make_tiny_model({.n_layers = kLayers, .context_tokens = 4096, .biases = true});
    constexpr std::int64_t kPrompt = 2560;
    ViewOptions small_once = kSmall;
    small_once.rebuild_tokens = 0;
    const ViewOptions large{.budget_tokens = 768, .recent_tokens = 512, .rebuild_tokens = 16};
    ViewOptions large_once = large;
    large_once.rebuild_tokens = 0;
    ViewOptions whole = kWhole;
    whole.budget_tokens = 4096;
    for (ViewOptions view : {kSmall, small_once, large, large_once, whole})
        for (const KvStreams streams : {KvStreams::Nowhere, KvStreams::Everywhere, KvStreams::BehindTheFirst}) {
            view.growth_tokens = 300;
            ViewedSplit several(*files, {.parts = {2, 2},
                                         .view = view,
                                         .streams = streams,
                                         .context_tokens = 4096,
                                         .forward = {.max_tokens = 600, .max_logit_rows = 64},
                                         .scratch_nodes = 600,
                                         .ring_bytes = 196608});
            const auto what = testing::Message()
                              << view.budget_tokens << ' ' << view.rebuild_tokens << ' ' << static_cast<int>(streams);
            ASSERT_TRUE(several.target->takes_prompt(kPrompt));
            several.target->extend(kPrompt);
            const NodeId node = several.target->add_node(kCommittedTip);
            const TokenId token = 5;
            const std::int32_t root = 0;
            const std::vector<TokenId> prompt = random_tokens(kPrompt, 1);
            static_cast<void>(several.target->run({.prompt = prompt,
                                                   .tokens = {&token, 1},
                                                   .nodes = {&node, 1},
                                                   .logit_tokens = {&root, 1},
                                                   .needs = LogitRequest{}}));
            several.target->commit({&node, 1});
            const bool at_once = streams == KvStreams::Nowhere || view.recent_tokens >= 512;
            EXPECT_EQ(several.over_view->n_text(), at_once ? kPrompt + 1 : 0) << what;
            if (view.budget_tokens == whole.budget_tokens) {
                several.follow(false);
                EXPECT_TRUE(same_bits(logits_over_view(*several.over_view), logits_over_cache(*several.target)))
                    << what;
                continue;
            }
            // Scores decide, even in layers that came in parts: some of the groups that are neither the first nor the
            // last ones are not those that would be kept if all scores were equal. Of the model's last layer, a prompt
            // computes no queries: if it came in parts, its first and last groups are kept.
            const std::int64_t n_between = view.budget_tokens - view.sink_tokens - view.recent_tokens;
            for (std::int64_t layer = 0; at_once && layer < kLayers; ++layer) {
                const bool is_unscored = layer + 1 == kLayers && streams != KvStreams::Nowhere;
                const auto is_chosen = [&](const GroupMove& move) {
                    return move.from * kGroupTokens >= view.sink_tokens + n_between &&
                           move.from * kGroupTokens < kPrompt - view.recent_tokens - n_between;
                };
                EXPECT_EQ(std::ranges::count_if(several.chosen(layer), is_chosen) == 0, is_unscored) << what << layer;
                EXPECT_EQ(several.chosen(layer).front().from, 0) << what << layer;
            }
            for (int i = 0; i < 20; ++i) {
                run_chain(*several.target, 4, 2);
                if (!at_once && i == 0) continue;  // ranks that built need new scores if they dropped theirs
                EXPECT_EQ(several.over_view->n_text(), several.target->n_committed()) << what << ' ' << i;
            }
        }
}

// Where one rank's is lost, all are: the source is not ready, and the next pass that builds builds all.
TEST_P(RankView, StandsForATextOnAllDevicesOrOnNone) {
    ViewedSplit several(*files_, halves(kWhole, KvStreams::Nowhere));
    feed(*several.target, 600);
    run_chain(*several.target, 4, 4);
    EXPECT_EQ(several.over_view->n_text(), 604);
    several.ranks[1]->view.invalidate();
    EXPECT_EQ(several.over_view->n_text(), 0);
    run_chain(*several.target, 4, 4);
    EXPECT_EQ(several.over_view->n_text(), 608);
    EXPECT_EQ(several.ranks[0]->builder.n_built(), 2);
    several.follow(false);
    EXPECT_TRUE(same_bits(logits_over_view(*several.over_view), logits_over_cache(*several.target)));
}

TEST_P(RankView, AGuessThatFailsIsToldByItsDeviceAndCostsNothing) {
    for (const auto fault : {&CpuFaults::ops_until_failure, &CpuFaults::rows_until_failure}) {
        CpuFaults faults[2];
        ViewedSplitOptions on = halves(kSmall, KvStreams::Everywhere);
        for (std::size_t i = 0; i < 2; ++i)
            on.devices.push_back({.name = "device " + std::to_string(i + 1), .faults = &faults[i]});
        ViewedSplit several(*files_, on);
        feed(*several.target, 900);
        for (int i = 0; i < 4; ++i) run_chain(*several.target, 6, 3);
        ASSERT_GT(several.over_view->n_text(), 0);
        const std::vector<float> expected = logits_over_view(*several.over_view);
        for (std::size_t rank = 0; rank < 2; ++rank) {
            int n_failures = 0;
            for (std::int64_t nth = 1; nth < 40; nth += 2) {
                (faults[rank].*fault) = nth;
                try {
                    static_cast<void>(logits_over_view(*several.over_view));
                } catch (const RankFailed& failure) {
                    ++n_failures;
                    EXPECT_THAT(failure.what(), testing::StartsWith("device " + std::to_string(rank + 1) + ", "));
                }
                (faults[rank].*fault) = 0;
                ASSERT_TRUE(same_bits(logits_over_view(*several.over_view), expected));
            }
            EXPECT_GT(n_failures, 0);
        }
    }
}

// A fault anywhere in what verifies, builds and commits: behind it views are those of the text, or none.
TEST_P(RankView, FaultsOfTheTargetLeaveViewsOfTheTextOrNone) {
    std::mt19937 random(7);
    int n_failures = 0;
    for (int round = 0; round < 60; ++round) {
        CpuFaults faults[2];
        const auto streams = static_cast<KvStreams>(round % 3);
        ViewedSplitOptions on = halves(kWhole, streams);
        on.view.rebuild_tokens = 8;
        for (CpuFaults& each : faults) {
            each.stall_after = std::chrono::milliseconds(100);
            on.devices.push_back({.faults = &each});
        }
        ViewedSplit several(*files_, on);
        feed(*several.target, 520);
        CpuFaults& struck = faults[random() % 2];
        const int kind = round / 3 % 3;
        auto& countdown = kind == 0 ? struck.ops_until_failure
                                    : (kind == 1 ? struck.rows_until_failure : struck.copies_until_failure);
        countdown = 1 + static_cast<std::int64_t>(random() % (kind == 0 ? 600 : 60));
        for (int i = 0; i < 18; ++i) {
            if (i == 12) countdown = 0;  // what failed behind the last pass is told by the next one
            try {
                run_chain(*several.target, 6, 1 + i % 4);
            } catch (const RankFailed&) {
                ++n_failures;
                several.target->forget();
            }
            ASSERT_TRUE(several.over_view->n_text() == 0 ||
                        several.over_view->n_text() == several.target->n_committed())
                << round;
            ASSERT_EQ(several.ranks[0]->cache.n_committed(), several.ranks[1]->cache.n_committed());
        }
        ASSERT_EQ(several.over_view->n_text(), several.target->n_committed()) << round;
        several.follow(false);
        ASSERT_TRUE(same_bits(logits_over_view(*several.over_view), logits_over_cache(*several.target))) << round;
    }
    EXPECT_GT(n_failures, 15);
}

INSTANTIATE_TEST_SUITE_P(Splits, RankView, testing::Values(SplitKind::Layers, SplitKind::Tensor),
                         [](const auto& split) { return split.param == SplitKind::Layers ? "Layers" : "Tensor"; });

}  // namespace
}  // namespace slipstream
