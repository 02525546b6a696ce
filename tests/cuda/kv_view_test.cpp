// Scores of groups near those in double, the same bits however chunks are cut into calls; groups moved bit for bit.
#include "tests/cuda/under_test.h"
#include "tests/kernels/kv_view_cases.h"

namespace slipstream::testing_cuda {
namespace {

using testing_view::Chunks;
using testing_view::Query;
using testing_view::Rows;

constexpr DType kTypes[] = {DType::F32, DType::F16, DType::BF16, DType::Q8_0};

class CudaKvView : public CudaOps {};

TEST_F(CudaKvView, ScoresAreThoseOfDouble) {
    for (const DType type : kTypes)
        for (const std::int64_t head_dim : {64, 80, 128, 256, 18})  // the last one's rows do not lie on 16 bytes
            for (const std::int64_t group : {1, 3, 8, 9})
                for (const GroupScore score : {GroupScore::Mass, GroupScore::Mean}) {
                    const std::int64_t n_slots = group == 3 ? 256 : group == 8 ? 128 + 9 : 256 + 77;
                    const std::int64_t n_kv_heads = head_dim == 256 ? 1 : 2;
                    const Rows rows({n_kv_heads, head_dim, type}, n_slots,
                                    static_cast<std::uint32_t>(head_dim + group));
                    const float scale = group == 8 ? 3.0F : 1.0F / std::sqrt(static_cast<float>(head_dim));
                    // Some scores are capped, far below the largest.
                    const Query query(rows.shape, group, scale, score, group == 3 || group == 9 ? 4.0F : 0.0F);
                    const Chunks chunks(exec(), rows);
                    SCOPED_TRACE(testing::Message() << group << " heads of " << head_dim << " " << dtype_name(type));
                    testing_view::expect_exact(rows, query,
                                               scores_of(exec(), rows, chunks, query, {0, chunks.count()}));
                }
}

TEST_F(CudaKvView, BitsDoNotDependOnCalls) {
    for (const DType type : kTypes) {
        const Rows rows({3, 80, type}, 3 * kChunkTokens + 75, 5);
        for (const GroupScore score : {GroupScore::Mass, GroupScore::Mean}) {
            const Query query(rows.shape, 3, 0.1F, score, score == GroupScore::Mass ? 2.0F : 0.0F);
            const Chunks chunks(exec(), rows);
            const std::vector<float> whole = scores_of(exec(), rows, chunks, query, {0, 4});
            for (const std::vector<std::int64_t>& cuts : {std::vector<std::int64_t>{0, 1, 2, 3, 4}, {0, 3, 4}})
                EXPECT_TRUE(same_bits(whole, scores_of(exec(), rows, chunks, query, cuts))) << dtype_name(type);
        }
    }
}

// More chunks than one launch takes: one chunk, again and again.
TEST_F(CudaKvView, ScoresMoreChunksThanALaunchTakes) {
    constexpr std::int64_t kChunks = (1 << 12) + 1;
    const Rows rows({1, 2, DType::F16}, kChunkTokens, 3);
    const Query query(rows.shape, 1, 1.0F, GroupScore::Mass);
    const Chunks chunks(exec(), rows);
    const std::vector<const std::byte*> pointers(kChunks, chunks.pointers()[0]);
    const DeviceFloats q(exec(), 1, 2, query.q);
    const DeviceFloats out(exec(), kChunks, kChunkTokens / kGroupTokens);
    kv_score(exec(), {.shape = rows.shape,
                      .q = q.view(),
                      .n_q_heads = 1,
                      .chunks = pointers.data(),
                      .end_chunk = kChunks,
                      .n_committed = kChunks * kChunkTokens,
                      .out = out.data(),
                      .n_groups = kChunks * kChunkTokens / kGroupTokens});
    const std::vector<float> found = out.read();
    const std::span<const float> first = std::span(found).first(kChunkTokens / kGroupTokens);
    EXPECT_FALSE(std::isnan(first[0]));
    for (std::int64_t chunk = 1; chunk < kChunks; ++chunk)
        ASSERT_TRUE(
            same_bits(first, std::span(found).subspan(static_cast<std::size_t>(chunk) * first.size(), first.size())))
            << "chunk " << chunk;
}

TEST_F(CudaKvView, GathersGroupsBitForBit) {
    for (const DType type : kTypes)
        for (const std::int64_t head_dim : {64, 80, 2, 256}) {
            const KvLayout shape{3, head_dim, type};
            const Rows from(shape, 4 * kChunkTokens, 7);
            const Rows to(shape, 2 * kChunkTokens, 8);
            for (const std::int64_t n : {0, 1, 50, 192})
                testing_view::expect_gathers(
                    exec(), from, to,
                    testing_view::random_moves(shape, from.n_slots, to.n_slots, n, static_cast<std::uint32_t>(n)));
        }
}

TEST_F(CudaKvView, GathersMoreGroupsThanALaunchTakes) {
    const KvLayout shape{8, 4, DType::BF16};
    const Rows from(shape, 4 * kChunkTokens, 7);
    const Rows to(shape, 16 * kChunkTokens, 8);
    testing_view::expect_gathers(exec(), from, to,
                                 testing_view::random_moves(shape, from.n_slots, to.n_slots, 1 << 20, 9));
}

}  // namespace
}  // namespace slipstream::testing_cuda
