// Views built on a card: the groups that the CPU chooses, over every placement of KV and every timing of streams, and
// rows that are the cache's own; scores come to the host by one copy a pass. Two cards keep and guess what their split
// does, whatever streams.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "emulated_machine.h"
#include "kernels/cpu_device.h"
#include "kernels/cuda/host/cuda_device.h"
#include "runtime/cache/cache_fill.h"
#include "tests/support/target_texts.h"
#include "tests/support/tiny_model.h"
#include "tests/support/viewed_model.h"
#include "tests/support/viewed_split.h"

namespace slipstream {
namespace {

using emulation::kTimings;
using emulation::Machine;
using emulation::Timing;

constexpr std::size_t kCardBytes = std::size_t{256} << 20;
constexpr std::int64_t kFilled = 700;
const TinyModelOptions kModel{.n_layers = 3, .head_dim = 64, .weight_type = DType::BF16};
const TinyModelOptions kQ8Model{.n_layers = 3, .head_dim = 64, .weight_type = DType::BF16, .kv_dtype = DType::Q8_0};

using Placement = std::vector<std::int64_t>;
const std::vector<Placement> kPlacements{{}, {0, 0, 0}, {1, 0, 2}};

/// Of all layers, by a pass or two behind the same positions.
std::vector<GroupMove> chosen_on(Device& device, const ModelFiles& files, const ViewOptions& options,
                                 const Placement& placement) {
    ViewedModel viewed(files, device, options, placement);
    fill_cache(viewed.cache, viewed.forward->exec(), kFilled, 7, {});
    // One scored, one copied: the second would choose anew if it began.
    EXPECT_LE(viewed.run_until_built(), 2);
    EXPECT_EQ(viewed.builder.n_built(), 1);
    std::vector<GroupMove> all;
    for (std::int64_t layer = 0; layer < kModel.n_layers; ++layer)
        for (const GroupMove& move : viewed.builder.chosen(layer)) all.push_back(move);
    return all;
}

bool same(const std::vector<GroupMove>& a, const std::vector<GroupMove>& b) {
    return std::ranges::equal(a, b, [](const GroupMove& x, const GroupMove& y) {
        return x.head == y.head && x.from == y.from && x.to == y.to;
    });
}

void expect_the_groups_of_the_cpu(const TinyModelOptions& of) {
    const auto files = make_tiny_model(of);
    for (const GroupScore score : {GroupScore::Mass, GroupScore::Mean}) {
        const ViewOptions options{.score = score, .budget_tokens = 256, .rebuild_tokens = 500, .in_steps = true};
        CpuDevice cpu({.n_threads = 1});
        const std::vector<GroupMove> expected = chosen_on(cpu, *files, options, {});
        ASSERT_EQ(std::ssize(expected), kModel.n_layers * kModel.n_kv_heads * 256 / kGroupTokens);
        for (const Timing timing : kTimings)
            for (const Placement& placement : kPlacements) {
                const Machine machine({.timing = timing});
                CudaDevice card(machine.table(), {.memory_bytes = kCardBytes});
                EXPECT_TRUE(same(chosen_on(card, *files, options, placement), expected))
                    << static_cast<int>(timing) << ' ' << placement.size() << ' ' << static_cast<int>(score);
            }
    }
}

TEST(EmulatedView, ACardChoosesTheGroupsThatTheCpuChooses) {
    for (const TinyModelOptions& of : {kModel, kQ8Model}) expect_the_groups_of_the_cpu(of);
}

void expect_the_bits_of_the_cache(const TinyModelOptions& of) {
    const auto files = make_tiny_model(of);
    for (const Timing timing : {Timing::Latest, Timing::CopiesEarly})
        for (const Placement& placement : kPlacements) {
            const Machine machine({.timing = timing});
            CudaDevice card(machine.table(), {.memory_bytes = kCardBytes});
            ViewedModel viewed(*files, card,
                               {.budget_tokens = ViewedModel::kContext, .rebuild_tokens = 500, .growth_tokens = 128},
                               placement);
            fill_cache(viewed.cache, viewed.forward->exec(), kFilled, 7, {});
            viewed.run_until_built();
            EXPECT_TRUE(viewed.same_logits()) << static_cast<int>(timing) << ' ' << placement.size();
            for (int i = 0; i < 3; ++i) viewed.run(5, 1 + i);  // it grows by rows of the cache
            EXPECT_TRUE(viewed.same_logits()) << static_cast<int>(timing) << ' ' << placement.size();
        }
}

TEST(EmulatedView, AViewOfTheWholeTextGivesTheBitsOfTheCache) {
    for (const TinyModelOptions& of : {kModel, kQ8Model}) expect_the_bits_of_the_cache(of);
}

// Pages on a card: the same bits whatever streams and whenever, near the logits over the cache; rows alone are far.
TEST(EmulatedView, PagesAreNearTheCacheWhateverStreamsAndWhenever) {
    for (const TinyModelOptions& of : {kModel, kQ8Model}) {
        const auto files = make_tiny_model(of);
        const auto seen = [&](const ViewOptions& options, Timing timing, const Placement& placement, double& distance) {
            const Machine machine({.timing = timing});
            CudaDevice card(machine.table(), {.memory_bytes = kCardBytes});
            ViewedModel viewed(*files, card, options, placement);
            fill_cache(viewed.cache, viewed.forward->exec(), kFilled, 7, {});
            for (int i = 0; i < 6; ++i) viewed.run(8, 8);  // built, and pages are appended
            EXPECT_EQ(viewed.view.n_text(), viewed.cache.n_committed());
            const std::vector<float> over_view = viewed.logits_over_view();
            viewed.target->build_views_with({});
            const std::vector<float> whole = logits_over_cache(*viewed.target);
            distance = 0.0;
            for (std::size_t i = 0; i < whole.size(); ++i) distance += std::abs(over_view[i] - whole[i]);
            return over_view;
        };
        const ViewOptions pages{.type = ViewType::Q4,
                                .budget_tokens = ViewedModel::kContext,
                                .recent_tokens = 64,
                                .rebuild_tokens = 16,
                                .growth_tokens = 64};
        ViewOptions rows = pages;
        rows.type = ViewType::Rows;
        rows.kind = ViewKind::Window;
        rows.budget_tokens = pages.row_tokens();
        double far = 0.0;
        static_cast<void>(seen(rows, Timing::AtOnce, {}, far));
        double near = 0.0;
        const std::vector<float> expected = seen(pages, Timing::AtOnce, {}, near);
        EXPECT_GT(near, 0.0);
        EXPECT_LT(2.0 * near, far);
        for (const Timing timing : kTimings)
            for (const Placement& placement : kPlacements)
                EXPECT_TRUE(same_bits(seen(pages, timing, placement, near), expected))
                    << static_cast<int>(timing) << ' ' << placement.size();
    }
}

// Copies of a pass that scores, beyond those of the same pass without a view.
TEST(EmulatedView, ScoresOfAllLayersComeByOneCopy) {
    for (const std::int64_t n_layers : {1, 3}) {
        TinyModelOptions model = kModel;
        model.n_layers = n_layers;
        const auto files = make_tiny_model(model);
        const Machine machine({});
        CudaDevice card(machine.table(), {.memory_bytes = kCardBytes});
        ViewedModel viewed(*files, card, {.budget_tokens = 256, .in_steps = true}, {});
        fill_cache(viewed.cache, viewed.forward->exec(), kFilled, 7, {});
        const auto copies_of_a_pass = [&](ViewBuilder* builder) {
            viewed.target->build_views_with(builder != nullptr ? std::vector{builder} : std::vector<ViewBuilder*>{});
            const std::int64_t before = machine.n_copies();
            viewed.run(6, 0);
            return machine.n_copies() - before;
        };
        copies_of_a_pass(nullptr);  // arrays that differ from what is there are copied once
        const std::int64_t plain = copies_of_a_pass(nullptr);
        EXPECT_EQ(copies_of_a_pass(&viewed.builder), plain + 1) << n_layers;
    }
}

// Logits over the views of two cards, behind passes that build them in two steps.
std::vector<float> seen_on_two_cards(const ModelFiles& files, SplitKind kind, KvStreams streams, Timing timing,
                                     ViewType type) {
    Machine machine({.n_cards = 2, .timing = timing});
    std::vector<std::unique_ptr<Device>> cards;
    std::vector<Device*> given;
    for (std::int32_t card = 0; card < 2; ++card) {
        cards.push_back(std::make_unique<CudaDevice>(
            machine.table(), CudaDeviceOptions{.ordinal = card, .memory_bytes = kCardBytes, .n_threads = 1}));
        given.push_back(cards.back().get());
    }
    ViewedSplit several(
        files,
        {.parts = kind == SplitKind::Layers ? std::vector<std::int64_t>{2, 1} : std::vector<std::int64_t>{1, 1},
         .view = {.type = type,
                  .budget_tokens = 128,
                  .recent_tokens = type == ViewType::Q4 ? 32 : 64,
                  .rebuild_tokens = 8,
                  .in_steps = true},
         .streams = streams,
         .kind = kind,
         .ring_bytes = std::size_t{1} << 18},
        given);
    for (int i = 0; i < 3; ++i) run_chain(*several.target, 64, 64, Wanted::Nothing);
    std::vector<float> all;
    for (int i = 0; i < 6; ++i) {
        run_chain(*several.target, 6, 3);
        if (i < 4) continue;  // built, and built again
        EXPECT_GT(several.over_view->n_text(), 0);
        const std::vector<float> logits = logits_over_view(*several.over_view);
        all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
}

TEST(EmulatedView, TwoCardsGuessAlikeWhateverStreamsAndWhenever) {
    const auto files = make_tiny_model(kModel);
    for (const ViewType type : {ViewType::Rows, ViewType::Q4})
        for (const SplitKind kind : {SplitKind::Layers, SplitKind::Tensor}) {
            const std::vector<float> expected =
                seen_on_two_cards(*files, kind, KvStreams::Nowhere, Timing::AtOnce, type);
            EXPECT_EQ(std::ssize(expected), 2 * kMostViewRows * kTinyVocab);
            for (const Timing timing : kTimings)
                for (const KvStreams streams : {KvStreams::Nowhere, KvStreams::Everywhere, KvStreams::BehindTheFirst})
                    EXPECT_TRUE(same_bits(seen_on_two_cards(*files, kind, streams, timing, type), expected))
                        << static_cast<int>(kind) << static_cast<int>(timing) << static_cast<int>(streams)
                        << view_type_name(type);
        }
}

}  // namespace
}  // namespace slipstream
