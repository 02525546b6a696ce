// Attention over chunks and scratch: against plain softmax in double, and bit-equal however a token is reached (E1).
#include "kernels/attention.h"

#include <cmath>
#include <initializer_list>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "tests/kernels/attention_cases.h"

namespace slipstream {
namespace {

using testing_attention::Cache;
using testing_attention::case_name;

class AttentionTest : public testing_attention::FormsAndTypes {};

struct Shape {
    std::int64_t n_q_heads, n_kv_heads, head_dim;
    float softcap = 0.0F;
};
// Scores reach 10 and more, so caps of 2 and 5 bend most of them.
constexpr Shape kShapes[] = {{1, 1, 2},       {8, 4, 8},        {6, 2, 20},       {4, 2, 64},
                             {5, 1, 80},      {3, 3, 96},       {8, 1, 128},      {4, 1, 256},
                             {2, 1, 2, 5.0F}, {6, 2, 20, 2.0F}, {8, 1, 64, 5.0F}, {4, 1, 256, 50.0F}};

// Error of a weighted mean of unit-size values whose weights come from float scores: a score's error is at most d eps
// times the sum of |q k|, which is below 40 sqrt(d) here with the outliers; it moves the weights by as much.
// Integer products over Q8_0 round to 2^-16 of the largest: queries of sizes up to 5, times elements of a key of 1.6
// with the outliers; and the 64 weights of a step, times elements of a value, 0.8 on average.
double bound(std::int64_t head_dim, DType type) {
    const double rounding = type == DType::Q8_0 ? (5 * 1.6 + 64 * 0.8) / 65536 : 0.0;
    return 1e-5 * std::sqrt(static_cast<double>(head_dim)) + rounding;
}

// Compares tokens after each of some commit points, of a chain of `n` tokens that `cache` gets, with the reference.
void expect_reference(Cache& cache, const Shape& shape, DType type, int n, std::initializer_list<int> commit_points) {
    std::vector<int> chain;
    for (int i = 0; i < n; ++i) chain.push_back(cache.add_token(i - 1));
    for (const int n_committed : commit_points) {
        for (const int window : {0, 1, 50, 300}) {
            const std::vector<int> tokens(chain.begin() + n_committed, chain.begin() + std::min(n, n_committed + 70));
            const std::vector<float> out = cache.run(tokens, n_committed, window, 0);
            const std::size_t cols = out.size() / tokens.size();
            double worst = 0.0;
            for (std::size_t t = 0; t < tokens.size(); t += 23) {
                const std::vector<double> expected = cache.reference(tokens[t], window);
                for (std::size_t i = 0; i < cols; ++i)
                    worst = std::max(worst, std::abs(out[t * cols + i] - expected[i]));
            }
            EXPECT_LT(worst, bound(shape.head_dim, type))
                << "head_dim " << shape.head_dim << ", committed " << n_committed << ", window " << window
                << ", softcap " << shape.softcap;
        }
    }
}

TEST_P(AttentionTest, EqualsSoftmaxInDouble) {
    CpuDevice cpu = device();
    for (const Shape& shape : kShapes) {
        Cache cache(cpu, {shape.n_kv_heads, shape.head_dim, dtype()}, shape.n_q_heads, 7, shape.softcap);
        expect_reference(cache, shape, dtype(), 600, {0, 1, 63, 64, 65, 255, 256, 257, 599});
    }
}

TEST_P(AttentionTest, ASinkJoinsTheSoftmaxOfItsHead) {
    CpuDevice cpu = device();
    for (const Shape& shape : kShapes) {
        Cache cache(cpu, {shape.n_kv_heads, shape.head_dim, dtype()}, shape.n_q_heads, 7, shape.softcap);
        cache.with_sinks();
        expect_reference(cache, shape, dtype(), 330, {0, 64, 255, 257, 329});
    }
}

TEST(AttentionDeathTest, SinksAreOneForEachQueryHead) {
    CpuDevice cpu({});
    Cache cache(cpu, {1, 8, DType::F16}, 2, 5);
    cache.add_token(-1);
    cache.prepare({0}, 0, 0);
    std::vector<float> out(16);
    AttentionArgs args = cache.args(0);
    args.out = matrix_view(out.data(), 1, 16);
    args.sinks = vector_view(reinterpret_cast<const std::byte*>(out.data()), DType::F32, 3);
    EXPECT_DEATH(attention(cache.exec(), args), "attention of 2 heads with 3 sinks");
}

TEST_P(AttentionTest, BitsDoNotDependOnThePassTheTreeOrTheThreads) {
    CpuDevice one = device(1);
    CpuDevice two = device(2);
    for (const int n_committed : {0, 5, 60, 64, 250, 256, 300}) {
        for (const std::int64_t window : {0, 33}) {
            const float softcap = n_committed % 2 == 0 && window != 0 ? 3.0F : 0.0F;
            Cache alone(one, {2, 24, dtype()}, 6, 11, softcap);
            Cache other(two, {2, 24, dtype()}, 6, 11, softcap);
            if (n_committed % 4 == 0) alone.with_sinks(), other.with_sinks();
            std::mt19937 random(static_cast<std::uint32_t>(n_committed));
            std::vector<int> tree;
            const int n_stem = n_committed == 0 ? 1 : n_committed;
            for (int i = 0; i < n_stem; ++i) alone.add_token(i - 1), other.add_token(i - 1);
            for (int i = 0; i < 90; ++i) {  // depths up to several steps: every third node goes deeper
                const int parent = i == 0 || random() % 3 != 0 ? (tree.empty() ? n_stem - 1 : tree.back())
                                                               : tree[random() % tree.size()];
                const int token = alone.add_token(parent);
                EXPECT_EQ(other.add_token(parent), token);
                tree.push_back(token);
            }
            const int committed = n_committed == 0 ? 0 : n_stem;
            const std::vector<float> whole = alone.run(tree, committed, window, 0);
            const std::size_t cols = whole.size() / tree.size();
            EXPECT_EQ(other.run(tree, committed, window, 5), whole) << "rows in another order, two threads";
            for (std::size_t i = 0; i < tree.size(); i += 7) {
                const auto length = static_cast<std::int64_t>(alone.path(tree[i]).size());
                const std::vector<float> expected(whole.begin() + static_cast<std::ptrdiff_t>(i * cols),
                                                  whole.begin() + static_cast<std::ptrdiff_t>((i + 1) * cols));
                EXPECT_EQ(alone.run({tree[i]}, length - 1, window, 0), expected) << "plain decoding of node " << i;
                EXPECT_EQ(alone.run({tree[i]}, length / 2, window, 3), expected)
                    << "half its path committed, node " << i;
            }
        }
    }
}

TEST_P(AttentionTest, ChunksDealtOutToThreadsGiveTheBitsOfOneThread) {
    CpuDevice one = device(1);
    CpuDevice three = device(3);
    struct Case {
        Shape shape;
        int n_committed, n_tokens;
        std::int64_t window;
    };
    // The last one's partial states are so large that they take two waves.
    for (const Case& which : {Case{{4, 2, 64}, 1000, 1, 0}, Case{{4, 2, 64}, 700, 2, 300}, Case{{3, 1, 16}, 511, 3, 0},
                              Case{{4, 1, 256, 5.0F}, 700, 2, 0}, Case{{64, 1, 512}, 600, 3, 0}}) {
        const KvLayout kv{which.shape.n_kv_heads, which.shape.head_dim, dtype()};
        Cache alone(one, kv, which.shape.n_q_heads, 5, which.shape.softcap);
        Cache shared(three, kv, which.shape.n_q_heads, 5, which.shape.softcap);
        if (which.n_committed == 700) alone.with_sinks(), shared.with_sinks();
        std::vector<int> tokens;
        for (int i = 0; i < which.n_committed + which.n_tokens; ++i) {
            alone.add_token(i - 1);
            shared.add_token(i - 1);
            if (i >= which.n_committed) tokens.push_back(i);
        }
        EXPECT_EQ(shared.run(tokens, which.n_committed, which.window, 0),
                  alone.run(tokens, which.n_committed, which.window, 0))
            << which.n_tokens << " tokens behind " << which.n_committed;
    }
}

TEST(AttentionForms, RowsThatComeAnotherWayGiveTheSameBits) {
    if (!cpu_has_form(CpuForm::Avx512Bf16)) GTEST_SKIP() << "this machine has no avx512_bf16";
    CpuDevice by_l2({.n_threads = 1, .form = CpuForm::Avx512Vnni});
    CpuDevice into_l1({.n_threads = 1, .form = CpuForm::Avx512Bf16});
    for (const DType type : {DType::F32, DType::F16, DType::BF16, DType::Q8_0})
        for (const std::int64_t head_dim : {16, 80, 128, 256})
            for (const std::int64_t n_tokens : {1, 5}) {
                const KvLayout shape{.n_kv_heads = 2, .head_dim = head_dim, .dtype = type};
                const float softcap = head_dim == 80 ? 5.0F : 0.0F;
                Cache one(by_l2, shape, 8, 5, softcap);
                Cache other(into_l1, shape, 8, 5, softcap);
                std::vector<int> tokens;
                for (int i = 0; i < 600 + n_tokens; ++i) {
                    one.add_token(i - 1);
                    other.add_token(i - 1);
                    if (i >= 600) tokens.push_back(i);
                }
                EXPECT_EQ(other.run(tokens, 600, 0, 0), one.run(tokens, 600, 0, 0))
                    << dtype_name(type) << ", head_dim " << head_dim << ", " << n_tokens << " tokens";
            }
}

// Of AVX-512's own softmax, and of AVX2's: the weights come from exp and tanh without fused operations.
TEST_P(AttentionTest, ASoftcapOfNoneAndOneThatBendsNothingAreNear) {
    CpuDevice cpu = device();
    Cache plain(cpu, {1, 64, dtype()}, 4, 7);
    Cache capped(cpu, {1, 64, dtype()}, 4, 7, 1e5F);
    Cache bent(cpu, {1, 64, dtype()}, 4, 7, 1.0F);
    std::vector<int> chain;
    for (int i = 0; i < 200; ++i) {
        chain.push_back(plain.add_token(i - 1));
        capped.add_token(i - 1);
        bent.add_token(i - 1);
    }
    const std::vector<int> tokens(chain.begin() + 190, chain.end());
    const std::vector<float> expected = plain.run(tokens, 190, 0, 0);
    const std::vector<float> near = capped.run(tokens, 190, 0, 0);
    const std::vector<float> far = bent.run(tokens, 190, 0, 0);
    double most_near = 0.0, most_far = 0.0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        most_near = std::max(most_near, std::abs(static_cast<double>(near[i]) - expected[i]));
        most_far = std::max(most_far, std::abs(static_cast<double>(far[i]) - expected[i]));
    }
    EXPECT_LT(most_near, dtype() == DType::Q8_0 ? 4.0 / 65536 : 1e-5);  // weights of values up to 4
    EXPECT_GT(most_far, 0.1);
}

TEST(AttentionDeathTest, ASoftcapIsAFiniteNumberThatIsNotNegative) {
    CpuDevice cpu({});
    Cache cache(cpu, {1, 8, DType::F16}, 1, 5);
    cache.add_token(-1);
    for (const float softcap : {-1.0F, INFINITY, std::nanf("")}) {
        cache.prepare({0}, 0, 0);
        std::vector<float> out(8);
        AttentionArgs args = cache.args(0);
        args.out = matrix_view(out.data(), 1, 8);
        args.softcap = softcap;
        EXPECT_DEATH(attention(cache.exec(), args), "attention with a softcap of");
    }
}

INSTANTIATE_TEST_SUITE_P(Forms, AttentionTest,
                         testing::Combine(testing::ValuesIn(kCpuForms),
                                          testing::Values(DType::F32, DType::F16, DType::BF16, DType::Q8_0)),
                         case_name);

}  // namespace
}  // namespace slipstream
