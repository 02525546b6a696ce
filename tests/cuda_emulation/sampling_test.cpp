// Choosing tokens on emulated blocks: bit for bit what the host chooses from the same logits.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/noise.h"
#include "kernels/cuda/sampling_launch.h"
#include "kernels/sampling.h"
#include "tests/cuda_emulation/schedule.h"

namespace slipstream {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rows with equals, and here and there what is never chosen.
std::vector<float> random_logits(std::int32_t n, std::int32_t vocab, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> logits(static_cast<std::size_t>(n) * static_cast<std::size_t>(vocab));
    for (float& logit : logits) {
        logit = std::round(normal(random) * 64) / 16;
        if (random() % 50 == 0) logit = std::nanf("");
        if (random() % 50 == 0) logit = -kInfinity;
        if (random() % 50 == 0) logit = -0.0F;
    }
    return logits;
}
cuda::LogitRows rows_of(const std::vector<float>& logits, std::int32_t n, std::int32_t vocab) {
    return {logits.data(), vocab, n, vocab};
}

struct Shape {
    std::int32_t n, vocab;
};
constexpr Shape kShapes[] = {{1, 1}, {3, 7}, {2, 4096}, {2, 4097}, {5, 8193}, {1, 20001}, {0, 100}};

TEST(CudaSamplingTest, ArgmaxIsTheFirstOfTheGreatest) {
    for (const Shape& shape : kShapes) {
        std::vector<float> logits = random_logits(shape.n, shape.vocab, 1);
        if (shape.n == 3) std::fill(logits.begin(), logits.begin() + shape.vocab, std::nanf(""));
        for (const emulation::Schedule schedule : {emulation::kAllSchedules[0], emulation::kAllSchedules[4]}) {
            const emulation::ScopedSchedule scope(schedule);
            std::vector<std::int32_t> ids(static_cast<std::size_t>(shape.n), -7);
            std::vector<float> values(ids.size(), std::nanf(""));
            std::vector<std::byte> scratch(cuda::argmax_scratch_bytes(shape.n, shape.vocab));
            cuda::launch_argmax({rows_of(logits, shape.n, shape.vocab), ids.data(), values.data(), scratch.data()},
                                nullptr);
            for (std::int32_t row = 0; row < shape.n; ++row) {
                float best = -kInfinity;
                std::int32_t best_id = -1;
                for (std::int32_t i = 0; i < shape.vocab; ++i) {
                    const float logit = logits[row * shape.vocab + i];
                    if (logit > best) best = logit, best_id = i;
                }
                EXPECT_EQ(ids[row], best_id) << shape.vocab;
                EXPECT_EQ(values[row], best);
            }
        }
    }
}

TEST(CudaSamplingTest, GumbelIsTheHostsDraw) {
    for (const Shape& shape : kShapes) {
        for (const double temperature : {0.1, 1.0, 7.3}) {
            const std::vector<float> logits = random_logits(shape.n, shape.vocab, 2);
            const std::uint64_t seed = 0x123456789abcdefULL;
            std::vector<std::int64_t> positions;
            for (std::int32_t row = 0; row < shape.n; ++row) positions.push_back((std::int64_t{1} << 33) + 5 * row);
            std::vector<std::int32_t> ids(positions.size(), -7);
            std::vector<float> scores(ids.size(), std::nanf(""));
            std::vector<std::byte> scratch(cuda::gumbel_scratch_bytes(shape.n, shape.vocab));
            cuda::launch_gumbel({.rows = rows_of(logits, shape.n, shape.vocab),
                                 .positions = positions.data(),
                                 .seed = seed,
                                 .temperature = temperature,
                                 .ids = ids.data(),
                                 .scores = scores.data(),
                                 .scratch = scratch.data()},
                                nullptr);
            for (std::int32_t row = 0; row < shape.n; ++row) {
                const float* logit = logits.data() + static_cast<std::ptrdiff_t>(row) * shape.vocab;
                float greatest = -kInfinity;
                for (std::int32_t i = 0; i < shape.vocab; ++i)
                    if (logit[i] > greatest) greatest = logit[i];
                float best = -kInfinity;
                std::int32_t best_id = -1;
                for (std::int32_t i = 0; i < shape.vocab; ++i) {
                    if (!(logit[i] > -kInfinity)) continue;
                    const double below = logit[i] == greatest ? 0.0 : static_cast<double>(logit[i]) - greatest;
                    const float score =
                        static_cast<float>(below / temperature) +
                        gumbel_noise(seed, static_cast<std::uint64_t>(positions[row]), static_cast<std::uint32_t>(i));
                    if (score > best) best = score, best_id = i;
                }
                EXPECT_EQ(ids[row], best_id) << shape.vocab << " at " << temperature;
                EXPECT_EQ(scores[row], best);
            }
        }
    }
}

// The same bits whatever order threads run in; near the sum in double.
TEST(CudaSamplingTest, SumsAreTheSameInEverySchedule) {
    for (const Shape& shape : kShapes) {
        const std::vector<float> logits = random_logits(shape.n, shape.vocab, 4);
        const auto n = static_cast<std::size_t>(shape.n);
        std::vector<float> greatest(n, -kInfinity);
        std::vector<double> exact(n, 0.0);
        const auto row_of = [&](std::size_t row) {
            return std::span(logits).subspan(row * static_cast<std::size_t>(shape.vocab),
                                             static_cast<std::size_t>(shape.vocab));
        };
        for (std::size_t row = 0; row < n; ++row) {
            for (const float logit : row_of(row))
                if (logit > greatest[row]) greatest[row] = logit;
            for (const float logit : row_of(row))
                if (logit > -kInfinity) exact[row] += std::exp((double{logit} - double{greatest[row]}) / 0.7);
        }
        std::vector<float> first;
        for (const emulation::Schedule schedule : emulation::kAllSchedules) {
            const emulation::ScopedSchedule scope(schedule);
            std::vector<float> sums(n + 1, std::nanf(""));
            std::vector<std::byte> scratch(cuda::logit_sum_scratch_bytes(shape.n, shape.vocab));
            cuda::launch_logit_sum({.rows = rows_of(logits, shape.n, shape.vocab),
                                    .greatest = greatest.data(),
                                    .greatest_stride = 1,
                                    .inverse_temperature = static_cast<float>(1.0 / 0.7),
                                    .sums = sums.data(),
                                    .scratch = scratch.data()},
                                   nullptr);
            EXPECT_TRUE(std::isnan(sums.back()));
            sums.pop_back();
            for (std::size_t row = 0; row < n; ++row) EXPECT_NEAR(sums[row], exact[row], kLogitSumError * exact[row]);
            if (first.empty()) first = sums;
            EXPECT_EQ(sums, first);
        }
    }
}

TEST(CudaSamplingTest, TopKIsInOrder) {
    for (const Shape& shape : {Shape{3, 7}, Shape{2, 64}, Shape{2, 4097}, Shape{1, 20001}, Shape{0, 9}}) {
        for (const std::int32_t k : {1, 5, 64}) {
            std::vector<float> logits = random_logits(shape.n, shape.vocab, 3);
            if (shape.n == 2)
                std::fill(logits.begin(), logits.begin() + shape.vocab / 2, 1.0F);  // equals over the border
            std::vector<std::int32_t> ids(static_cast<std::size_t>(shape.n * k) + 4, -7);
            std::vector<float> values(ids.size(), std::nanf(""));
            std::vector<std::byte> scratch(cuda::top_k_scratch_bytes(shape.n, shape.vocab, k));
            cuda::launch_top_k({rows_of(logits, shape.n, shape.vocab), k, ids.data(), values.data(), scratch.data()},
                               nullptr);
            for (std::int32_t row = 0; row < shape.n; ++row) {
                const float* logit = logits.data() + static_cast<std::ptrdiff_t>(row) * shape.vocab;
                std::vector<std::int32_t> order;
                for (std::int32_t i = 0; i < shape.vocab; ++i)
                    if (logit[i] > -kInfinity) order.push_back(i);
                std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logit[a] > logit[b]; });
                order.resize(static_cast<std::size_t>(k), -1);
                for (std::int32_t i = 0; i < k; ++i) {
                    const auto at = static_cast<std::size_t>(row * k + i);
                    const std::int32_t id = order[i];
                    ASSERT_EQ(ids[at], id) << shape.vocab << ", best " << i << " of " << k;
                    ASSERT_EQ(values[at], id < 0 ? -kInfinity : logit[id]);
                }
            }
            for (std::size_t i = static_cast<std::size_t>(shape.n * k); i < ids.size(); ++i) EXPECT_EQ(ids[i], -7);
        }
    }
}

}  // namespace
}  // namespace slipstream
