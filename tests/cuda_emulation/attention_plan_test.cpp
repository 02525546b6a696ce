// How calls of attention are cut: chains share their gathered steps, siblings do not, scratch stays within its bound.
#include "kernels/cuda/attention/attention_plan.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/attention/attention_planner.h"

namespace slipstream {
namespace {

using cuda::AttentionPlan;
using cuda::AttentionWay;

// A call of tokens whose paths are given as scratch rows behind n_committed positions. Planning reads no rows of
// floats.
class Call {
public:
    Call(std::int64_t n_committed, const std::vector<std::vector<std::int32_t>>& paths, std::int64_t n_q_heads = 4,
         KvLayout shape = {.n_kv_heads = 2, .head_dim = 64, .dtype = DType::F16})
        : chunks_(static_cast<std::size_t>((n_committed + kChunkTokens - 1) / kChunkTokens)) {
        for (const auto& path : paths) {
            positions_.push_back(static_cast<std::int32_t>(n_committed + std::ssize(path)) - 1);
            path_begin_.push_back(static_cast<std::int32_t>(path_rows_.size()));
            path_rows_.insert(path_rows_.end(), path.begin(), path.end());
        }
        args_ = {.shape = shape,
                 .q = matrix_view(static_cast<const float*>(nullptr), std::ssize(paths), n_q_heads * shape.head_dim),
                 .n_q_heads = n_q_heads,
                 .positions = positions_.data(),
                 .chunks = chunks_.data(),
                 .n_committed = n_committed,
                 .path_begin = path_begin_.data(),
                 .path_rows = path_rows_.data()};
    }
    AttentionArgs& args() { return args_; }

private:
    std::vector<std::int32_t> positions_, path_begin_, path_rows_;
    std::vector<const std::byte*> chunks_;
    AttentionArgs args_;
};

std::vector<std::vector<std::int32_t>> chain(std::int32_t n) {
    std::vector<std::vector<std::int32_t>> paths;
    for (std::int32_t i = 1; i <= n; ++i) {
        paths.emplace_back(static_cast<std::size_t>(i));
        std::iota(paths.back().begin(), paths.back().end(), 0);
    }
    return paths;
}

TEST(CudaAttentionPlanTest, AChainGathersEachStepOnce) {
    Call call(100, chain(70));  // positions 100 to 169, two query heads a token: tiles of 32 tokens
    const AttentionPlan plan = cuda::plan_attention(call.args(), {1});
    EXPECT_EQ(plan.way, AttentionWay::Folded);
    ASSERT_EQ(plan.tiles.size(), 3U);
    // Step 0 is committed; the tiles end at positions 131, 163 and 169.
    EXPECT_EQ(plan.tiles[0].end_step, 1);
    EXPECT_EQ(plan.tiles[0].end_gather - plan.tiles[0].first_gather, 2);
    EXPECT_EQ(plan.tiles[1].end_gather - plan.tiles[1].first_gather, 2);
    EXPECT_EQ(plan.tiles[2].end_gather - plan.tiles[2].first_gather, 2);
    EXPECT_EQ(plan.tiles[2].n_rows, 12);
    const cuda::AttentionGather& last = plan.gathers.back();
    EXPECT_EQ(last.step, 2);
    EXPECT_EQ(last.end_slot, 169 - 128 + 1);
    EXPECT_EQ(plan.rows[last.rows_at + 0], 28);  // position 128
    EXPECT_EQ(plan.gathers[0].end_slot, 64);
    EXPECT_EQ(plan.rows[plan.gathers[0].rows_at + 36], 0);  // position 100
}

TEST(CudaAttentionPlanTest, SiblingsGatherForThemselves) {
    Call call(64, {{0}, {0, 1}, {0, 2}, {0, 2, 3}});
    const AttentionPlan plan = cuda::plan_attention(call.args(), {1});
    ASSERT_EQ(plan.tiles.size(), 1U);
    ASSERT_EQ(plan.gathers.size(), 2U);  // nodes 0 and 1; nodes 2 and 3
    EXPECT_EQ(plan.gathers[0].first_row, 0);
    EXPECT_EQ(plan.gathers[0].end_row, 4);
    EXPECT_EQ(plan.gathers[1].first_row, 4);
    EXPECT_EQ(plan.gathers[1].end_row, 8);
    EXPECT_EQ(plan.gathers[1].end_slot, 3);
    EXPECT_EQ(plan.rows, (std::vector<std::int32_t>{0, 1, 0, 2, 3}));
}

TEST(CudaAttentionPlanTest, AWindowAndAPartCutTheSteps) {
    Call call(1000, chain(3));
    call.args().window = 200;
    const AttentionPlan plan = cuda::plan_attention(call.args(), {1});
    EXPECT_EQ(plan.first_chunk, 3);  // position 801 is the lowest that is seen
    EXPECT_EQ(plan.end_chunk, 4);
    EXPECT_EQ(plan.tiles[0].first_step, 12);
    EXPECT_EQ(plan.tiles[0].end_step, 15);
    call.args().window = 0;
    call.args().part = AttentionPart::Middle;
    call.args().first_chunk = 1;
    call.args().end_chunk = 2;
    const AttentionPlan part = cuda::plan_attention(call.args(), {1});
    EXPECT_EQ(part.first_chunk, 1);
    EXPECT_EQ(part.n_chunks(), 1);
    EXPECT_EQ(part.tiles[0].first_step, 4);
    EXPECT_EQ(part.tiles[0].end_step, 8);
    EXPECT_TRUE(part.gathers.empty());
}

TEST(CudaAttentionPlanTest, ScratchStaysWithinItsBound) {
    for (const std::int64_t head_dim : {64, 256, 20})
        for (const std::int32_t n_multiprocessors : {1, 4, 128})
            for (const std::int32_t n : {1, 7, 64, 300}) {
                const KvLayout shape{.n_kv_heads = 2, .head_dim = head_dim, .dtype = DType::BF16};
                Call call(40000, chain(n), 8, shape);
                const AttentionPlan plan = cuda::plan_attention(call.args(), {n_multiprocessors});
                const std::size_t bytes = cuda::attention_scratch_floats(plan, call.args()) * sizeof(float);
                EXPECT_LE(bytes, cuda::attention_scratch_bytes(shape, 8, n, {n_multiprocessors}));
                EXPECT_LE(bytes, cuda::attention_scratch_bytes(shape, 8, 300, {n_multiprocessors}));
                EXPECT_EQ(bytes > 0, plan.way == AttentionWay::Parallel) << n << " on " << n_multiprocessors;
            }
}

// 512 tokens of a model of 8 kv heads, 128K positions behind them, on a card of 132 multiprocessors.
TEST(CudaAttentionPlanTest, ALargeTreeFoldsOnACardThatItNearlyFills) {
    const KvLayout shape{.n_kv_heads = 8, .head_dim = 128, .dtype = DType::F16};
    const cuda::AttentionCard card{.n_multiprocessors = 132, .l2_bytes = std::size_t{50} << 20};
    Call call(131072 - 512, chain(512), 32, shape);
    EXPECT_EQ(cuda::plan_attention(call.args(), card).way, AttentionWay::Folded);
    Call few(131072 - 64, chain(64), 32, shape);
    EXPECT_EQ(cuda::plan_attention(few.args(), card).way, AttentionWay::Parallel);
}

TEST(CudaAttentionPlanTest, WavesAreOfOneSizeAndTakeHalfTheCache) {
    const KvLayout shape{.n_kv_heads = 8, .head_dim = 128, .dtype = DType::F16};
    for (const std::int32_t n : {1, 8, 64, 150}) {
        Call call(131072 - n, chain(n), 32, shape);
        const AttentionPlan small = cuda::plan_attention(call.args(), {.n_multiprocessors = 132});
        const cuda::AttentionCard card{.n_multiprocessors = 132, .l2_bytes = std::size_t{50} << 20};
        const AttentionPlan plan = cuda::plan_attention(call.args(), card);
        ASSERT_EQ(plan.way, AttentionWay::Parallel) << n;
        EXPECT_GE(plan.wave_chunks, small.wave_chunks);
        EXPECT_LE(plan.n_waves() * plan.wave_chunks - plan.launch_chunks, plan.n_waves() - 1) << n;
        if (n == 64) {
            EXPECT_LT(2 * plan.n_waves(), small.n_waves()) << plan.n_waves();
        }
        EXPECT_LE(cuda::attention_scratch_floats(plan, call.args()) * sizeof(float),
                  cuda::attention_scratch_bytes(shape, 32, n, card));
    }
}

// As 128K positions stream: 33 pieces a layer, and the last with the pass's own rows.
TEST(CudaAttentionPlannerTest, PiecesOfOneLayerAreFoundInTheNext) {
    cuda::AttentionPlanner planner;
    Call call(131072, chain(7));
    for (int layer = 0; layer < 3; ++layer)
        for (std::int64_t piece = 0; piece < 33; ++piece) {
            call.args().part = piece == 0    ? AttentionPart::First
                               : piece == 32 ? AttentionPart::Last
                                             : AttentionPart::Middle;
            call.args().first_chunk = 16 * piece;
            call.args().end_chunk = piece == 32 ? kAllChunks : 16 * piece + 16;
            EXPECT_EQ(planner.plan(call.args(), {128}).first_chunk, 16 * piece);
        }
    EXPECT_EQ(planner.n_made(), 33U);
    EXPECT_EQ(planner.n_found(), 66U);
}

// Arrays that stand where others stood are not those.
TEST(CudaAttentionPlannerTest, OtherContentsAreAnotherPlan) {
    cuda::AttentionPlanner planner;
    Call a(1000, chain(3));
    Call b(1000, {{0}, {0, 1}, {0, 2}});
    EXPECT_EQ(planner.plan(a.args(), {1}).gathers.size(), 1U);
    EXPECT_EQ(planner.plan(b.args(), {1}).gathers.size(), 2U);
    EXPECT_EQ(planner.plan(a.args(), {1}).gathers.size(), 1U);
    EXPECT_EQ(planner.n_made(), 2U);
}

// Heads of 64 have no kernel with a softcap on tensor cores, so no tiles are cut for them.
TEST(CudaAttentionPlannerTest, ASoftcapIsAnotherPlan) {
    cuda::AttentionPlanner planner;
    Call call(1000, chain(3));
    EXPECT_EQ(planner.plan(call.args(), {1}).tiles.size(), 1U);
    call.args().softcap = 50.0F;
    EXPECT_EQ(planner.plan(call.args(), {1}).tiles.size(), 0U);
    call.args().softcap = 0.0F;
    EXPECT_EQ(planner.plan(call.args(), {1}).tiles.size(), 1U);
    EXPECT_EQ(planner.n_made(), 2U);
}

TEST(CudaAttentionPlanTest, APartWithoutChunksTakesNoScratch) {
    Call call(100, chain(1));
    call.args().part = AttentionPart::Last;
    call.args().first_chunk = 5;
    const AttentionPlan plan = cuda::plan_attention(call.args(), {128});
    EXPECT_EQ(plan.n_chunks(), 0);
    EXPECT_EQ(plan.n_waves(), 1);
    EXPECT_EQ(cuda::attention_scratch_floats(plan, call.args()), 0U);
}

}  // namespace
}  // namespace slipstream
