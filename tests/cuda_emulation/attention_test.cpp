// Attention on emulated blocks: against softmax in double, and bit-equal however a query is reached (E1): alone, in a
// chain, in a tree, with any commit point, in tiles and waves of any size, in parts, under every schedule.
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cuda_emulation/attention_on_card.h"
#include "tests/cuda_emulation/schedule.h"

namespace slipstream {
namespace {

using emulation::ScopedSchedule;
using testing_attention::attend_on_card;
using testing_attention::Cache;
using testing_attention::Cut;
using testing_attention::Expected;
using testing_attention::expected_of;
using testing_attention::kFolded;
using testing_attention::kOneWarp;
using testing_attention::kWavesOfTwo;

constexpr Cut kCuts[] = {kFolded, kOneWarp, kWavesOfTwo};

struct Shape {
    std::int64_t n_q_heads, n_kv_heads, head_dim;
    float softcap = 0.0F;
    bool sinks = false;
};
std::string name_of(const testing::TestParamInfo<DType>& info) {
    return std::string(dtype_name(info.param));
}

class CudaAttentionTest : public testing::TestWithParam<DType> {
protected:
    Cache cache(const Shape& shape, std::uint32_t seed) {
        Cache cache(cpu_, {shape.n_kv_heads, shape.head_dim, GetParam()}, shape.n_q_heads, seed, shape.softcap);
        if (shape.sinks) cache.with_sinks();
        return cache;
    }
    // A chain of n tokens; their numbers.
    static std::vector<int> grow_chain(Cache& cache, int n) {
        std::vector<int> chain;
        for (int i = 0; i < n; ++i) chain.push_back(cache.add_token(i - 1));
        return chain;
    }
    CpuDevice cpu_{CpuDeviceOptions{}};
};

// Weights are rounded to the KV type, with Q8 to F16 (relative u; F16 loses what is below 2^-25 of the step's
// greatest); a score's roundings, d of them, add up like a random walk and shift weights by as much; sums and factors
// are some dozen roundings of 2^-24.
void expect_near(const AttentionArgs& args, const std::vector<float>& out, std::int64_t token,
                 const std::string& what) {
    const std::int64_t d = args.shape.head_dim;
    const bool rounds =
        cuda::attention_on_tensor_cores(cuda::kv_type(args.shape.dtype), static_cast<int>(d), args.softcap);
    const double u = !rounds ? 0.0 : args.shape.dtype == DType::BF16 ? 0x1p-8 : 0x1p-11;
    for (std::int64_t head = 0; head < args.n_q_heads; ++head) {
        const Expected expected = expected_of(args, token, head);
        for (std::int64_t e = 0; e < d; ++e) {
            const auto i = static_cast<std::size_t>(e);
            const double bound = expected.magnitude[i] *
                                     (u + 64 * 0x1p-24 + 4 * std::sqrt(static_cast<double>(d)) * expected.score_error) +
                                 (rounds ? 1e-5 : 1e-7);
            ASSERT_NEAR(out[(token * args.n_q_heads + head) * d + e], expected.value[i], bound)
                << what << ", token " << token << ", head " << head << ", element " << e;
        }
    }
}

TEST_P(CudaAttentionTest, EqualsSoftmaxInDouble) {
    // Heads that the tensor kernels know, and one that they do not; groups that straddle tiles.
    constexpr Shape shapes[] = {{4, 2, 64},
                                {1, 1, 96},
                                {7, 1, 128},
                                {4, 1, 256},
                                {2, 2, 20},
                                {18, 1, 64},
                                {7, 1, 128, 5.0F},
                                {4, 1, 256, 5.0F},
                                {2, 2, 64, 5.0F},
                                {8, 1, 64, 0.0F, true},
                                {5, 1, 20, 0.0F, true},
                                {6, 2, 128, 5.0F, true}};
    for (const Shape& shape : shapes) {
        Cache rows = cache(shape, 7);
        const std::vector<int> chain = grow_chain(rows, 330);
        for (const auto& [n_committed, window] : {std::pair{0, 0}, std::pair{1, 1}, std::pair{64, 50},
                                                  std::pair{255, 0}, std::pair{256, 1}, std::pair{300, 50}}) {
            const std::vector<int> tokens(chain.begin() + n_committed, chain.begin() + n_committed + 21);
            rows.prepare(tokens, n_committed, 3);
            const AttentionArgs args = rows.args(window);
            for (const Cut& cut : kCuts) {
                const std::vector<float> out = attend_on_card(rows, window, cut);
                for (std::int64_t t = 0; t < std::ssize(tokens); t += 10)
                    expect_near(args, out, t,
                                fmt::format("head_dim {}, {} committed, window {}, warps {}", shape.head_dim,
                                            n_committed, window, cut.warps));
                if (HasFailure()) return;
            }
        }
    }
}

TEST_P(CudaAttentionTest, EveryCutAndScheduleGivesTheSameBits) {
    for (const auto& [shape, n_committed, n] :
         {std::tuple{Shape{6, 2, 64}, 530, 12}, std::tuple{Shape{2, 1, 128}, 570, 3},
          std::tuple{Shape{4, 1, 256}, 530, 3}, std::tuple{Shape{2, 1, 128, 5.0F}, 530, 3},
          std::tuple{Shape{4, 1, 256, 5.0F}, 280, 9}, std::tuple{Shape{2, 1, 64, 5.0F}, 280, 2},
          std::tuple{Shape{5, 1, 64, 0.0F, true}, 570, 3}}) {
        Cache rows = cache(shape, 11);
        const std::vector<int> chain = grow_chain(rows, n_committed + n);
        rows.prepare({chain.begin() + n_committed, chain.end()}, n_committed, 2);
        const std::vector<float> expected = attend_on_card(rows, 0, kFolded);
        for (const Cut& cut : kCuts)
            for (const emulation::Schedule schedule : emulation::kAllSchedules) {
                const ScopedSchedule scope(schedule);
                EXPECT_EQ(attend_on_card(rows, 0, cut), expected)
                    << cut.warps << " warps, " << emulation::schedule_name(schedule);
            }
        for (const std::int32_t n_multiprocessors : {2, 8, 128})
            EXPECT_EQ(attend_on_card(rows, 0, {.n_multiprocessors = n_multiprocessors}), expected);
    }
}

TEST_P(CudaAttentionTest, BitsDoNotDependOnThePassTheTreeOrTheCommitPoint) {
    for (const int n_committed : {0, 60, 250}) {
        for (const std::int64_t window : {0, 33}) {
            Cache rows = cache(window == 0 ? Shape{6, 2, 64, 0.0F, n_committed == 60} : Shape{3, 1, 128, 5.0F}, 11);
            std::mt19937 random(static_cast<std::uint32_t>(n_committed));
            const int n_stem = std::max(1, n_committed);
            grow_chain(rows, n_stem);
            std::vector<int> tree;
            for (int i = 0; i < 90; ++i) {  // depths up to several steps: every third node goes elsewhere
                const int parent = i == 0 ? n_stem - 1 : random() % 3 != 0 ? tree.back() : tree[random() % tree.size()];
                tree.push_back(rows.add_token(parent));
            }
            rows.prepare(tree, n_committed, 5);
            const std::vector<float> whole = attend_on_card(rows, window, kFolded);
            EXPECT_EQ(attend_on_card(rows, window, kWavesOfTwo), whole);
            const std::size_t cols = whole.size() / tree.size();
            for (std::size_t i = 0; i < tree.size(); i += 17) {
                const auto length = static_cast<std::int64_t>(rows.path(tree[i]).size());
                const std::vector<float> expected(whole.begin() + static_cast<std::ptrdiff_t>(i * cols),
                                                  whole.begin() + static_cast<std::ptrdiff_t>((i + 1) * cols));
                rows.prepare({tree[i]}, length - 1, 0);
                EXPECT_EQ(attend_on_card(rows, window, kOneWarp), expected) << "plain decoding of node " << i;
                rows.prepare({tree[i]}, length / 2, 3);
                EXPECT_EQ(attend_on_card(rows, window, kFolded), expected) << "half its path committed, node " << i;
                rows.prepare({tree[i], tree[i]}, 0, 1);
                const std::vector<float> twice = attend_on_card(rows, window, kOneWarp);
                EXPECT_TRUE(std::equal(expected.begin(), expected.end(), twice.begin()) &&
                            std::equal(expected.begin(), expected.end(), twice.begin() + std::ssize(expected)))
                    << "nothing committed, node " << i;
            }
        }
    }
}

TEST_P(CudaAttentionTest, PassesOfAnyLengthGiveTheBitsOfOneToken) {
    Cache rows = cache({2, 1, 64}, 17);
    const std::vector<int> chain = grow_chain(rows, 40 + 513);
    rows.prepare({chain.begin() + 40, chain.end()}, 40, 0);
    const std::vector<float> whole = attend_on_card(rows, 0, kFolded);
    const std::size_t cols = whole.size() / 513;
    for (const int n : {1, 2, 7, 8, 64}) {
        for (const int first : {0, 130, 513 - n}) {
            rows.prepare({chain.begin() + 40 + first, chain.begin() + 40 + first + n}, 40 + first, 0);
            const std::vector<float> part = attend_on_card(rows, 0, n < 64 ? kOneWarp : kFolded);
            EXPECT_TRUE(std::equal(part.begin(), part.end(),
                                   whole.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(first) * cols)))
                << n << " from " << first;
        }
    }
}

TEST_P(CudaAttentionTest, PartsJoinToTheBitsOfOneCall) {
    Cache rows = cache({4, 2, 64, 0.0F, true}, 19);
    const std::vector<int> chain = grow_chain(rows, 1100);
    for (const auto& [n_committed, n, window] :
         {std::tuple{1000, 1, 0}, std::tuple{700, 25, 0}, std::tuple{1000, 20, 300}}) {
        rows.prepare({chain.begin() + n_committed, chain.begin() + n_committed + n}, n_committed, 4);
        const std::vector<float> whole = attend_on_card(rows, window, kFolded);
        for (const std::vector<std::int64_t>& cuts :
             {std::vector<std::int64_t>{1}, std::vector<std::int64_t>{0, 0, 2, 3}, std::vector<std::int64_t>{3, 9}})
            for (const Cut& cut : kCuts) EXPECT_EQ(attend_on_card(rows, window, cut, cuts), whole) << cuts.size();
    }
}

// Queries of no size and of a size that half floats do not reach. Behind the commit point, and in scratch rows of no
// path, the cache of these tests holds NaN throughout.
TEST_P(CudaAttentionTest, LargeScoresAndTinyQueriesStayFinite) {
    Cache rows = cache({2, 1, 64}, 23);
    const std::vector<int> chain = grow_chain(rows, 80);
    rows.prepare({chain.begin() + 70, chain.end()}, 70, 0);
    AttentionArgs args = rows.args(0);
    const testing_attention::CardChunks card(args);
    args.chunks = card.chunks().data();
    std::vector<float> q(static_cast<std::size_t>(args.q.rows() * args.q.cols()));
    std::vector<float> out(q.size());
    args.out = matrix_view(out.data(), args.q.rows(), args.q.cols());
    for (const float size : {0.0F, 1e-30F, 1e6F}) {
        for (std::size_t i = 0; i < q.size(); ++i) q[i] = size * (i % 3 == 0 ? -1.0F : 0.7F);
        args.q = matrix_view(static_cast<const float*>(q.data()), args.q.rows(), args.q.cols());
        for (const Cut& cut : kCuts) {
            std::fill(out.begin(), out.end(), std::nanf(""));
            testing_attention::launch_on_host(args, cut);
            for (const float value : out) ASSERT_TRUE(std::isfinite(value)) << size;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaAttentionTest, testing::Values(DType::F16, DType::BF16, DType::F32, DType::Q8_0),
                         name_of);

}  // namespace
}  // namespace slipstream
