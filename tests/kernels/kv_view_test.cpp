// Scores of groups near those in double, the same bits however chunks are cut into calls; groups moved bit for bit.
#include "tests/kernels/kv_view_cases.h"

#include <string>
#include <tuple>

#include "kernels/cpu/exp.h"
#include "kernels/cpu_device.h"

namespace slipstream::testing_view {
namespace {

class KvView : public testing::TestWithParam<std::tuple<CpuForm, DType>> {
protected:
    void SetUp() override {
        if (!cpu_has_form(std::get<0>(GetParam()))) GTEST_SKIP() << "the machine has no such instructions";
        device_.emplace(CpuDeviceOptions{.n_threads = 2, .form = std::get<0>(GetParam())});
        stream_ = device_->make_stream(StreamKind::Compute);
    }
    [[nodiscard]] static DType type() { return std::get<1>(GetParam()); }
    [[nodiscard]] ExecRef exec() { return {*device_, *stream_}; }

private:
    std::optional<CpuDevice> device_;
    std::unique_ptr<Stream> stream_;
};

TEST_P(KvView, ScoresAreThoseOfDouble) {
    for (const std::int64_t head_dim : {64, 80, 128, 2, 256})
        for (std::int64_t group = 1; group <= 8; ++group)
            for (const GroupScore score : {GroupScore::Mass, GroupScore::Mean}) {
                // Whole steps and chunks, a step's first slot, a group that is not whole.
                const std::int64_t n_slots = group % 3 == 0 ? 256 : group % 3 == 1 ? 256 + 77 : 193;
                const std::int64_t n_kv_heads = head_dim == 256 ? 1 : 2;
                const Rows rows({n_kv_heads, head_dim, type()}, n_slots, static_cast<std::uint32_t>(head_dim + group));
                // Scores of the larger scale would overflow, were they not taken below a group's greatest.
                const float scale = group == 8 ? 3.0F : 1.0F / std::sqrt(static_cast<float>(head_dim));
                // Some scores are capped, far below the largest.
                const Query query(rows.shape, group, scale, score, group % 2 == 0 ? 4.0F : 0.0F);
                const Chunks chunks(exec(), rows);
                SCOPED_TRACE(testing::Message() << group << " heads of " << head_dim << ", " << n_slots << " slots");
                expect_exact(rows, query, scores_of(exec(), rows, chunks, query, {0, chunks.count()}));
            }
}

TEST_P(KvView, BitsDoNotDependOnCallsOrThreads) {
    const Rows rows({3, 80, type()}, 3 * kChunkTokens + 75, 5);
    for (const GroupScore score : {GroupScore::Mass, GroupScore::Mean}) {
        const Query query(rows.shape, 3, 0.1F, score, score == GroupScore::Mass ? 2.0F : 0.0F);
        const Chunks chunks(exec(), rows);
        const std::vector<float> whole = scores_of(exec(), rows, chunks, query, {0, 4});
        for (const std::vector<std::int64_t>& cuts :
             {std::vector<std::int64_t>{0, 1, 2, 3, 4}, {0, 3, 4}, {0, 0, 2, 4}})
            EXPECT_TRUE(testing_cuda::same_bits(whole, scores_of(exec(), rows, chunks, query, cuts)));
        CpuDevice one({.n_threads = 1, .form = std::get<0>(GetParam())});
        const auto stream = one.make_stream(StreamKind::Compute);
        const ExecRef other{one, *stream};
        EXPECT_TRUE(testing_cuda::same_bits(whole, scores_of(other, rows, Chunks(other, rows), query, {0, 4})));
    }
}

TEST_P(KvView, WritesTheGroupsOfItsChunksOnly) {
    const Rows rows({2, 64, type()}, 2 * kChunkTokens + 100, 6);
    const Query query(rows.shape, 2, 0.125F, GroupScore::Mass);
    const Chunks chunks(exec(), rows);
    const std::int64_t stride = ceil_div(rows.n_slots, kGroupTokens) + 3;
    const std::vector<float> found = scores_of(exec(), rows, chunks, query, {1, 2});
    for (std::int64_t i = 0; i < std::ssize(found); ++i) {
        const std::int64_t group = i % stride;
        EXPECT_EQ(!std::isnan(found[i]), group >= 32 && group < 64) << "group " << group;
    }
}

TEST_P(KvView, GathersGroupsBitForBit) {
    for (const std::int64_t head_dim : {64, 80, 2, 256}) {
        const KvLayout shape{3, head_dim, type()};
        const Rows from(shape, 4 * kChunkTokens, 7);
        const Rows to(shape, 2 * kChunkTokens, 8);
        for (const std::int64_t n : {0, 1, 50, 192})
            expect_gathers(exec(), from, to,
                           random_moves(shape, from.n_slots, to.n_slots, n, static_cast<std::uint32_t>(n)));
    }
}

std::string name_of(const testing::TestParamInfo<std::tuple<CpuForm, DType>>& info) {
    return std::string(cpu_form_name(std::get<0>(info.param))) + "_" + std::string(dtype_name(std::get<1>(info.param)));
}
INSTANTIATE_TEST_SUITE_P(Forms, KvView,
                         testing::Combine(testing::Values(CpuForm::Scalar, CpuForm::Avx2, CpuForm::Avx512),
                                          testing::Values(DType::F32, DType::F16, DType::BF16, DType::Q8_0)),
                         name_of);

TEST(KvViewLog, IsNearTheLogarithm) {
    for (float x = 1.0F; x <= 8.0F; x += 0x1p-12F)
        ASSERT_NEAR(cpu::log_float(x), std::log(static_cast<double>(x)), 3e-7) << x;
    EXPECT_EQ(cpu::log_float(1.0F), 0.0F);
    for (const float x : {1e-30F, 0.5F, 3e30F})
        EXPECT_NEAR(cpu::log_float(x), std::log(static_cast<double>(x)), 1e-5) << x;
}

class KvViewArguments : public testing::Test {
protected:
    KvScoreArgs score_args() {
        return {.shape = shape,
                .q = matrix_view<const std::byte>(reinterpret_cast<const std::byte*>(q.data()), DType::F32, 1, 256),
                .n_q_heads = 4,
                .chunks = pointers.data(),
                .first_chunk = 0,
                .end_chunk = 2,
                .n_committed = 300,
                .out = out.data(),
                .n_groups = 38};
    }
    template <typename Change>
    void score_with(const Change& change) {
        KvScoreArgs args = score_args();
        change(args);
        kv_score({device, *stream}, args);
    }
    void gather(const GroupMove& move) {
        kv_gather({device, *stream},
                  {.shape = shape, .from = pointers.data(), .to = targets.data(), .moves = &move, .n_moves = 1});
    }

    const KvLayout shape{2, 64, DType::F16};
    CpuDevice device{{.n_threads = 1, .form = {}}};
    std::unique_ptr<Stream> stream = device.make_stream(StreamKind::Compute);
    std::vector<float> q = std::vector<float>(256);
    std::vector<float> out = std::vector<float>(4 * 38);
    std::vector<std::vector<std::byte>> storage{3, std::vector<std::byte>(shape.chunk_bytes())};
    std::vector<const std::byte*> pointers{storage[0].data(), storage[1].data(), nullptr};
    std::vector<std::byte*> targets{storage[2].data(), nullptr};
};

TEST_F(KvViewArguments, OfScoresAreChecked) {
    score_with([](KvScoreArgs&) {});
    EXPECT_EQ(out[37], std::log(4.0F));  // of four slots, q . k = 0
    EXPECT_DEATH(score_with([](KvScoreArgs& args) { args.n_q_heads = 3; }), "kv_score of .* 3 heads over 2 of 64");
    EXPECT_DEATH(score_with([](KvScoreArgs& args) { args.softcap = -1.0F; }), "kv_score with a softcap of -1");
    EXPECT_DEATH(score_with([](KvScoreArgs& args) { args.shape.dtype = DType::Q4_0; }), "kv shape");
    EXPECT_DEATH(score_with([](KvScoreArgs& args) { args.first_chunk = 3; }), "chunks \\[3, 2\\)");
    EXPECT_DEATH(score_with([](KvScoreArgs& args) { args.n_committed = 256; }), "with 256 slots committed");
    EXPECT_DEATH(score_with([](KvScoreArgs& args) { args.n_groups = 37; }), "38 groups into rows of 37");
    EXPECT_DEATH(score_with([](KvScoreArgs& args) { args.out = nullptr; }), "38 groups into rows of 38");
    EXPECT_DEATH(score_with([](KvScoreArgs& args) { args.end_chunk = 3, args.n_committed = 600, args.n_groups = 75; }),
                 "chunk 2 of .* is missing");
}

TEST_F(KvViewArguments, OfMovesAreChecked) {
    gather({.head = 1, .from = 40, .to = 3});
    EXPECT_DEATH(gather({.head = 2, .from = 40, .to = 3}), "move 0 of group 40 to 3, head 2 of 2");
    EXPECT_DEATH(gather({.head = 0, .from = -1, .to = 3}), "move 0 of group -1");
    EXPECT_DEATH(gather({.head = 0, .from = 64, .to = 3}), "move 0 of group 64");
    EXPECT_DEATH(gather({.head = 0, .from = 0, .to = 32}), "move 0 of group 0 to 32");
    EXPECT_DEATH(kv_gather({device, *stream}, {.shape = shape, .n_moves = 1}), "kv_gather of 1 groups");
}

}  // namespace
}  // namespace slipstream::testing_view
