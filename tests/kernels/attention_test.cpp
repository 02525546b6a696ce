// Attention over chunks and scratch: against plain softmax in double, and bit-equal however a token is reached (E1).
#include "kernels/attention.h"

#include <cmath>
#include <cstring>
#include <random>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/checked_math.h"
#include "kernels/base/float16.h"
#include "kernels/cpu_device.h"

namespace slipstream {
namespace {

float round_to(DType type, float value) {
    if (type == DType::F16) return to_float(to_half(value));
    if (type == DType::BF16) return to_float(to_bfloat16(value));
    return value;
}

// One layer's cache with random rows: committed positions, then a tree of scratch rows below them.
class Cache {
public:
    Cache(CpuDevice& device, KvShape shape, std::int64_t n_q_heads, std::uint32_t seed)
        : device_(device),
          stream_(device.make_stream(StreamKind::Compute)),
          shape_(shape),
          n_q_heads_(n_q_heads),
          random_(seed) {}

    ExecRef exec() { return {device_, *stream_}; }
    std::int64_t cols() const { return shape_.n_kv_heads * shape_.head_dim; }

    // A random token below `parent` (-1: the start); returns its number. Keys have outliers, so that a softmax can
    // fail.
    int add_token(int parent) {
        std::normal_distribution<float> normal;
        std::vector<float> k, v, q;
        for (std::int64_t i = 0; i < cols(); ++i) {
            k.push_back(normal(random_) * (random_() % 61 == 0 ? 8.0F : 1.0F));
            v.push_back(normal(random_));
        }
        for (std::int64_t i = 0; i < n_q_heads_ * shape_.head_dim; ++i) q.push_back(normal(random_));
        k_.push_back(k), v_.push_back(v), q_.push_back(q);
        parents_.push_back(parent);
        return static_cast<int>(parents_.size()) - 1;
    }
    std::vector<int> path(int token) const {
        std::vector<int> path;
        for (; token >= 0; token = parents_[static_cast<std::size_t>(token)]) path.insert(path.begin(), token);
        return path;
    }

    // Attention of `tokens` in one pass, the first n_committed of the path of tokens[0] committed (common to all).
    // Scratch rows are given out in an order that `shuffle` changes.
    std::vector<float> run(const std::vector<int>& tokens, std::int64_t n_committed, std::int64_t window,
                           unsigned shuffle) {
        const std::vector<int> first = path(tokens[0]);
        std::vector<int> rows;  // token of each scratch row
        for (const int token : tokens)
            for (const int step : path(token))
                if (std::find(first.begin(), first.begin() + n_committed, step) == first.begin() + n_committed &&
                    std::find(rows.begin(), rows.end(), step) == rows.end())
                    rows.push_back(step);
        std::mt19937 order(shuffle);
        if (shuffle != 0) std::shuffle(rows.begin(), rows.end(), order);
        const auto row_of = [&](int token) {
            return static_cast<std::int32_t>(std::find(rows.begin(), rows.end(), token) - rows.begin());
        };
        // Commit through scratch, in two goes, so that a chunk is also entered in its middle.
        std::vector<std::byte> storage(static_cast<std::size_t>(ceil_div(n_committed, kChunkTokens)) *
                                       shape_.chunk_bytes());
        std::vector<std::byte*> chunks;
        for (std::size_t at = 0; at < storage.size(); at += shape_.chunk_bytes()) chunks.push_back(storage.data() + at);
        const auto committed = std::vector<int>(first.begin(), first.begin() + n_committed);
        const std::int64_t half = n_committed / 3;
        for (const auto& [from, count] : {std::pair{std::int64_t{0}, half}, std::pair{half, n_committed - half}}) {
            if (count == 0) continue;
            fill_scratch({committed.begin() + from, committed.begin() + from + count});
            std::vector<std::int32_t> all;
            for (std::int64_t i = 0; i < count; ++i) all.push_back(static_cast<std::int32_t>(i));
            kv_commit(exec(), {.shape = shape_,
                               .scratch_k = scratch_k_.data(),
                               .scratch_v = scratch_v_.data(),
                               .scratch_rows = all.data(),
                               .n_rows = count,
                               .first_position = from,
                               .chunks = chunks.data()});
        }
        fill_scratch(rows);
        std::vector<std::int32_t> positions, begins, path_rows;
        std::vector<float> q;
        for (const int token : tokens) {
            const std::vector<int> steps = path(token);
            positions.push_back(static_cast<std::int32_t>(steps.size()) - 1);
            begins.push_back(static_cast<std::int32_t>(path_rows.size()));
            for (std::size_t i = static_cast<std::size_t>(n_committed); i < steps.size(); ++i)
                path_rows.push_back(row_of(steps[i]));
            const auto& own = q_[static_cast<std::size_t>(token)];
            q.insert(q.end(), own.begin(), own.end());
        }
        const auto n = static_cast<std::int64_t>(tokens.size());
        const std::int64_t out_cols = n_q_heads_ * shape_.head_dim;
        const float nan = std::nanf("");
        std::vector<float> out(static_cast<std::size_t>(n * out_cols + 32), nan);  // with a guard band
        attention(exec(), {.shape = shape_,
                           .q = matrix_view(static_cast<const float*>(q.data()), n, out_cols),
                           .out = matrix_view(out.data(), n, out_cols),
                           .n_q_heads = n_q_heads_,
                           .positions = positions.data(),
                           .chunks = chunks.data(),
                           .n_committed = n_committed,
                           .scratch_k = scratch_k_.data(),
                           .scratch_v = scratch_v_.data(),
                           .path_begin = begins.data(),
                           .path_rows = path_rows.data(),
                           .scale = scale(),
                           .window = window});
        for (std::size_t i = static_cast<std::size_t>(n * out_cols); i < out.size(); ++i)
            EXPECT_TRUE(std::isnan(out[i]));
        out.resize(static_cast<std::size_t>(n * out_cols));
        return out;
    }

    // Softmax over the visible path in double, of the rounded rows.
    std::vector<double> reference(int token, std::int64_t window) const {
        const std::vector<int> steps = path(token);
        const auto n = static_cast<std::int64_t>(steps.size());
        const std::int64_t d = shape_.head_dim;
        std::vector<double> out;
        for (std::int64_t head = 0; head < n_q_heads_; ++head) {
            const std::int64_t at = head / (n_q_heads_ / shape_.n_kv_heads) * d;
            std::vector<double> weights;
            double best = -INFINITY, sum = 0.0;
            const std::int64_t low = window == 0 ? 0 : std::max<std::int64_t>(0, n - window);
            for (std::int64_t i = low; i < n; ++i) {
                double score = 0.0;
                for (std::int64_t e = 0; e < d; ++e)
                    score += static_cast<double>(
                                 q_[static_cast<std::size_t>(token)][static_cast<std::size_t>(head * d + e)]) *
                             round_to(shape_.dtype, k_[static_cast<std::size_t>(steps[static_cast<std::size_t>(i)])]
                                                      [static_cast<std::size_t>(at + e)]);
                weights.push_back(score * scale());
                best = std::max(best, weights.back());
            }
            for (double& weight : weights) sum += weight = std::exp(weight - best);
            for (std::int64_t e = 0; e < d; ++e) {
                double value = 0.0;
                for (std::int64_t i = low; i < n; ++i)
                    value += weights[static_cast<std::size_t>(i - low)] / sum *
                             round_to(shape_.dtype, v_[static_cast<std::size_t>(steps[static_cast<std::size_t>(i)])]
                                                      [static_cast<std::size_t>(at + e)]);
                out.push_back(value);
            }
        }
        return out;
    }

private:
    float scale() const { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape_.head_dim))); }

    void fill_scratch(const std::vector<int>& tokens) {
        const std::size_t bytes = std::max<std::size_t>(1, tokens.size()) * shape_.scratch_row_bytes();
        scratch_k_.assign(bytes, std::byte{0x55});
        scratch_v_.assign(bytes, std::byte{0x55});
        std::vector<float> k, v;
        std::vector<std::int32_t> rows;
        for (const int token : tokens) {
            rows.push_back(static_cast<std::int32_t>(rows.size()));
            k.insert(k.end(), k_[static_cast<std::size_t>(token)].begin(), k_[static_cast<std::size_t>(token)].end());
            v.insert(v.end(), v_[static_cast<std::size_t>(token)].begin(), v_[static_cast<std::size_t>(token)].end());
        }
        kv_write(exec(),
                 {.shape = shape_,
                  .k = matrix_view(static_cast<const float*>(k.data()), static_cast<std::int64_t>(rows.size()), cols()),
                  .v = matrix_view(static_cast<const float*>(v.data()), static_cast<std::int64_t>(rows.size()), cols()),
                  .scratch_k = scratch_k_.data(),
                  .scratch_v = scratch_v_.data(),
                  .scratch_rows = rows.data()});
    }

    CpuDevice& device_;
    std::unique_ptr<Stream> stream_;
    KvShape shape_;
    std::int64_t n_q_heads_;
    std::mt19937 random_;
    std::vector<std::vector<float>> k_, v_, q_;
    std::vector<int> parents_;
    std::vector<std::byte> scratch_k_, scratch_v_;
};

class AttentionTest : public testing::TestWithParam<std::tuple<CpuForm, DType>> {
protected:
    void SetUp() override {
        if (std::get<0>(GetParam()) > best_cpu_form())
            GTEST_SKIP() << "this machine has no " << cpu_form_name(std::get<0>(GetParam()));
    }
    CpuDevice device(int n_threads = 1) { return CpuDevice({.n_threads = n_threads, .form = std::get<0>(GetParam())}); }
    DType dtype() const { return std::get<1>(GetParam()); }
};

struct Shape {
    std::int64_t n_q_heads, n_kv_heads, head_dim;
};
constexpr Shape kShapes[] = {{1, 1, 2}, {8, 4, 8}, {6, 2, 20}, {4, 2, 64}, {5, 1, 80}, {3, 3, 96}, {8, 1, 128}};

// Error of a weighted mean of unit-size values whose weights come from float scores: a score's error is at most d eps
// times the sum of |q k|, which is below 40 sqrt(d) here with the outliers; it moves the weights by as much.
double bound(std::int64_t head_dim) {
    return 1e-5 * std::sqrt(static_cast<double>(head_dim));
}

TEST_P(AttentionTest, EqualsSoftmaxInDouble) {
    CpuDevice cpu = device();
    for (const Shape& shape : kShapes) {
        Cache cache(cpu, {shape.n_kv_heads, shape.head_dim, dtype()}, shape.n_q_heads, 7);
        std::vector<int> chain;
        for (int i = 0; i < 600; ++i) chain.push_back(cache.add_token(i - 1));
        for (const int n_committed : {0, 1, 63, 64, 65, 255, 256, 257, 599}) {
            for (const int window : {0, 1, 50, 300}) {
                const std::vector<int> tokens(chain.begin() + n_committed,
                                              chain.begin() + std::min(600, n_committed + 70));
                const std::vector<float> out = cache.run(tokens, n_committed, window, 0);
                const std::size_t cols = out.size() / tokens.size();
                double worst = 0.0;
                for (std::size_t t = 0; t < tokens.size(); t += 23) {
                    const std::vector<double> expected = cache.reference(tokens[t], window);
                    for (std::size_t i = 0; i < cols; ++i)
                        worst = std::max(worst, std::abs(out[t * cols + i] - expected[i]));
                }
                EXPECT_LT(worst, bound(shape.head_dim))
                    << "head_dim " << shape.head_dim << ", committed " << n_committed << ", window " << window;
            }
        }
    }
}

TEST_P(AttentionTest, BitsDoNotDependOnThePassTheTreeOrTheThreads) {
    CpuDevice one = device(1);
    CpuDevice two = device(2);
    for (const int n_committed : {0, 5, 60, 64, 250, 256, 300}) {
        for (const std::int64_t window : {0, 33}) {
            Cache alone(one, {2, 24, dtype()}, 6, 11);
            Cache other(two, {2, 24, dtype()}, 6, 11);
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
                              Case{{64, 1, 512}, 600, 3, 0}}) {
        Cache alone(one, {which.shape.n_kv_heads, which.shape.head_dim, dtype()}, which.shape.n_q_heads, 5);
        Cache shared(three, {which.shape.n_kv_heads, which.shape.head_dim, dtype()}, which.shape.n_q_heads, 5);
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

INSTANTIATE_TEST_SUITE_P(Forms, AttentionTest,
                         testing::Combine(testing::ValuesIn(kCpuForms),
                                          testing::Values(DType::F32, DType::F16, DType::BF16)),
                         [](const auto& form) {
                             return std::string(cpu_form_name(std::get<0>(form.param))) + "_" +
                                    std::string(dtype_name(std::get<1>(form.param)));
                         });

}  // namespace
}  // namespace slipstream
