// Choosing tokens on the CPU, against a sort of the row and the plain definition of the draw.
#include "kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/noise.h"
#include "kernels/cpu_device.h"

namespace slipstream {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_row(std::int64_t vocab, std::mt19937& random) {
    std::normal_distribution<float> normal;
    std::vector<float> row(static_cast<std::size_t>(vocab));
    const int kind = static_cast<int>(random() % 8);
    for (float& logit : row) {
        logit = std::round(normal(random) * 32) / 8;  // many equals
        if (random() % 20 == 0) logit = std::nanf("");
        if (random() % 20 == 0) logit = -kInfinity;
        if (random() % 20 == 0) logit = -0.0F;
        if (kind == 0) logit = random() % 2 == 0 ? std::nanf("") : -kInfinity;
    }
    if (kind == 1) row[random() % row.size()] = kInfinity;
    return row;
}

class Sampling : public testing::Test {
protected:
    ExecRef exec() { return {device_, *stream_}; }

private:
    CpuDevice device_{{.n_threads = 2}};
    std::unique_ptr<Stream> stream_ = device_.make_stream(StreamKind::Compute);
};

// Ids above -inf, best first.
std::vector<std::int32_t> order_of(const std::vector<float>& row) {
    std::vector<std::int32_t> order;
    for (std::size_t id = 0; id < row.size(); ++id)
        if (row[id] > -kInfinity) order.push_back(static_cast<std::int32_t>(id));
    std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) { return row[a] > row[b]; });
    return order;
}

TEST_F(Sampling, TheBestAreThoseOfASort) {
    std::mt19937 random(1);
    for (const std::int64_t vocab : {1, 2, 63, 64, 65, 1000})
        for (int round = 0; round < 20; ++round) {
            const std::vector<float> row = random_row(vocab, random);
            const ConstTensorView logits = matrix_view(row.data(), 1, vocab);
            const std::vector<std::int32_t> order = order_of(row);
            for (const std::int64_t k : {1, 7, 64}) {
                std::vector<std::int32_t> ids(static_cast<std::size_t>(k), -7);
                std::vector<float> values(ids.size(), std::nanf(""));
                logit_top_k(exec(), {.logits = logits, .k = k, .ids = ids.data(), .values = values.data()});
                for (std::size_t i = 0; i < ids.size(); ++i) {
                    ASSERT_EQ(ids[i], i < order.size() ? order[i] : -1) << vocab << ", best " << i;
                    ASSERT_EQ(values[i], i < order.size() ? row[order[i]] : -kInfinity);
                    ASSERT_FALSE(values[i] == 0.0F && std::signbit(values[i]));
                }
            }
            std::int32_t id = -7;
            float value = std::nanf("");
            logit_argmax(exec(), {.logits = logits, .ids = &id, .values = &value});
            ASSERT_EQ(id, order.empty() ? -1 : order.front());
            ASSERT_EQ(value, order.empty() ? -kInfinity : row[order.front()]);
        }
}

TEST_F(Sampling, DrawsAreTheBestOfLogitAndNoise) {
    std::mt19937 random(2);
    for (const std::int64_t vocab : {1, 3, 130})
        for (int round = 0; round < 40; ++round) {
            const std::vector<float> row = random_row(vocab, random);
            const std::vector<std::int32_t> order = order_of(row);
            const double temperature = 0.05 * (1 << round % 6);
            const std::int64_t position = round;
            std::int32_t id = -7;
            float score = std::nanf("");
            logit_gumbel(exec(), {.logits = matrix_view(row.data(), 1, vocab),
                                  .positions = &position,
                                  .seed = 9,
                                  .temperature = temperature,
                                  .ids = &id,
                                  .scores = &score});
            float best = -kInfinity;
            std::int32_t best_id = -1;
            for (std::int32_t i = 0; i < vocab; ++i) {
                const float logit = row[i];
                if (!(logit > -kInfinity)) continue;
                const double greatest = row[order.front()];
                const double below = double{logit} == greatest ? 0.0 : double{logit} - greatest;
                const float of = static_cast<float>(below / temperature) +
                                 gumbel_noise(9, static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(i));
                if (of > best) best = of, best_id = i;
            }
            ASSERT_EQ(id, best_id) << vocab << ", round " << round;
            ASSERT_EQ(score, best);
        }
}

TEST_F(Sampling, SumsCountFromTheGreatest) {
    const std::vector<float> rows = {1.0F,       3.0F,       -kInfinity,    std::nanf(""), 3.0F,
                                     -kInfinity, -kInfinity, std::nanf(""), -kInfinity,    -kInfinity,
                                     kInfinity,  2.0F,       kInfinity,     -1.0F,         0.0F};
    const float greatest[] = {3.0F, 0.0F, -kInfinity, 0.0F, kInfinity, 0.0F};
    float sums[3];
    logit_sum(exec(), {.logits = matrix_view(rows.data(), 3, 5),
                       .greatest = greatest,
                       .greatest_stride = 2,
                       .temperature = 0.5,
                       .sums = sums});
    EXPECT_FLOAT_EQ(sums[0], 2.0F + std::exp(-4.0F));
    EXPECT_EQ(sums[1], 0.0F);
    EXPECT_EQ(sums[2], 2.0F);
}

}  // namespace
}  // namespace slipstream
