// Choosing tokens on the CUDA backend: what the CPU chooses from the same logits, bit for bit; sums within their bound;
// and E1: how many rows a call carries shows nowhere.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu_device.h"
#include "kernels/sampling.h"
#include "kernels/workspace.h"
#include "tests/cuda/device_array.h"
#include "tests/cuda/under_test.h"

namespace slipstream::testing_cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rows with equals, -0 and what is never chosen; row 1 holds no number at all, row 2 one +inf.
std::vector<float> random_logits(std::int64_t n, std::int64_t vocab, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> logits(static_cast<std::size_t>(n * vocab));
    for (float& logit : logits) {
        logit = std::round(normal(random) * 64) / 16;
        if (random() % 50 == 0) logit = std::nanf("");
        if (random() % 50 == 0) logit = -kInfinity;
        if (random() % 50 == 0) logit = -0.0F;
    }
    if (n > 1)
        for (std::int64_t id = 0; id < vocab; ++id) logits[vocab + id] = id % 2 == 0 ? -kInfinity : std::nanf("");
    if (n > 2) logits[2 * vocab + vocab / 2] = kInfinity;
    return logits;
}

/// Outputs of an op, as whole numbers and as floats, between guards (DeviceFloats takes any 32 bits).
std::vector<std::int32_t> ids_of(const DeviceFloats& array) {
    std::vector<std::int32_t> ids;
    for (const float value : array.read()) ids.push_back(__builtin_bit_cast(std::int32_t, value));
    return ids;
}
std::int32_t* as_ids(const DeviceFloats& array) {
    return reinterpret_cast<std::int32_t*>(array.data());
}

struct Shape {
    std::int64_t n, vocab;
};
// One, few and odd vocabularies, one past a piece of each kernel, more rows than a launch takes; none.
constexpr Shape kShapes[] = {{1, 1}, {3, 7}, {5, 64}, {2, 4097}, {3, 8193}, {1, 20001}, {70, 130}, {0, 100}};

class CudaSampling : public CudaOps {
protected:
    ExecRef cpu() { return {cpu_device_, *cpu_stream_}; }

private:
    CpuDevice cpu_device_{{.n_threads = 2}};
    std::unique_ptr<Stream> cpu_stream_ = cpu_device_.make_stream(StreamKind::Compute);
};

TEST_F(CudaSampling, ArgmaxAndTheBestAreTheCpus) {
    for (const Shape& shape : kShapes) {
        const std::vector<float> logits = random_logits(shape.n, shape.vocab, 1);
        const DeviceFloats rows(exec(), shape.n, shape.vocab, logits, 3);
        for (const std::int64_t k : {std::int64_t{0}, std::int64_t{1}, std::int64_t{8}, kMostTopLogits}) {
            const std::int64_t cols = std::max<std::int64_t>(k, 1);
            const DeviceFloats ids(exec(), shape.n, cols);
            const DeviceFloats values(exec(), shape.n, cols);
            std::vector<std::int32_t> expected_ids(static_cast<std::size_t>(shape.n * cols), -7);
            std::vector<float> expected(expected_ids.size(), std::nanf(""));
            const ConstTensorView host = matrix_view(logits.data(), shape.n, shape.vocab);
            if (k == 0) {
                logit_argmax(exec(), {.logits = rows.view(), .ids = as_ids(ids), .values = values.data()});
                logit_argmax(cpu(), {.logits = host, .ids = expected_ids.data(), .values = expected.data()});
            } else {
                logit_top_k(exec(), {.logits = rows.view(), .k = k, .ids = as_ids(ids), .values = values.data()});
                logit_top_k(cpu(), {.logits = host, .k = k, .ids = expected_ids.data(), .values = expected.data()});
            }
            EXPECT_EQ(ids_of(ids), expected_ids) << shape.n << " x " << shape.vocab << ", " << k;
            EXPECT_EQ(values.read(), expected) << shape.n << " x " << shape.vocab << ", " << k;
        }
    }
}

TEST_F(CudaSampling, DrawsAreTheCpus) {
    for (const Shape& shape : kShapes)
        for (const double temperature : {0.1, 0.8, 7.3}) {
            const std::vector<float> logits = random_logits(shape.n, shape.vocab, 2);
            std::vector<std::int64_t> positions;
            for (std::int64_t i = 0; i < shape.n; ++i) positions.push_back((std::int64_t{1} << 33) + 5 * i);
            const DeviceFloats rows(exec(), shape.n, shape.vocab, logits, 1);
            const DeviceFloats ids(exec(), shape.n, 1);
            const DeviceFloats scores(exec(), shape.n, 1);
            LogitGumbelArgs args{.logits = rows.view(),
                                 .positions = positions.data(),
                                 .seed = 0x123456789abcdefULL,
                                 .temperature = temperature,
                                 .ids = as_ids(ids),
                                 .scores = scores.data()};
            logit_gumbel(exec(), args);
            std::vector<std::int32_t> expected_ids(positions.size(), -7);
            std::vector<float> expected(positions.size(), std::nanf(""));
            args.logits = matrix_view(logits.data(), shape.n, shape.vocab);
            args.ids = expected_ids.data();
            args.scores = expected.data();
            logit_gumbel(cpu(), args);
            EXPECT_EQ(ids_of(ids), expected_ids) << shape.vocab << " at " << temperature;
            EXPECT_TRUE(same_bits(scores.read(), expected)) << shape.vocab << " at " << temperature;
        }
}

// The CPU sums in double. Rows alike alone and among others.
TEST_F(CudaSampling, SumsAreWithinTheirBound) {
    for (const Shape& shape : kShapes)
        for (const double temperature : {0.1, 1.0, 7.3}) {
            const std::vector<float> logits = random_logits(shape.n, shape.vocab, 3);
            const DeviceFloats rows(exec(), shape.n, shape.vocab, logits, 2);
            std::vector<std::int32_t> greatest_ids(static_cast<std::size_t>(shape.n));
            std::vector<float> greatest(greatest_ids.size());
            std::vector<float> expected(greatest_ids.size());
            const ConstTensorView host = matrix_view(logits.data(), shape.n, shape.vocab);
            logit_argmax(cpu(), {.logits = host, .ids = greatest_ids.data(), .values = greatest.data()});
            logit_sum(
                cpu(),
                {.logits = host, .greatest = greatest.data(), .temperature = temperature, .sums = expected.data()});
            const DeviceFloats best(exec(), shape.n, 1, greatest, 4);
            const DeviceFloats sums(exec(), shape.n, 1);
            LogitSumArgs args{.logits = rows.view(),
                              .greatest = best.data(),
                              .greatest_stride = 5,
                              .temperature = temperature,
                              .sums = sums.data()};
            logit_sum(exec(), args);
            const std::vector<float> found = sums.read();
            for (std::size_t i = 0; i < expected.size(); ++i)
                EXPECT_NEAR(found[i], expected[i], kLogitSumError * expected[i]) << i << " of " << shape.vocab;
            if (shape.n < 2) continue;
            const std::int64_t last = shape.n - 1;
            const DeviceFloats alone(exec(), 1, 1);
            args.logits = ConstTensorView(rows.view()).slice_rows(last, 1);
            args.greatest = best.data() + last * 5;
            args.sums = alone.data();
            logit_sum(exec(), args);
            EXPECT_TRUE(same_bits(alone.read(), std::span(found).last(1)));
        }
}

TEST_F(CudaSampling, TakesNoMoreThanItsWorkspace) {
    const WorkspaceShapes shapes{.n_logit_rows = 70, .vocab = 9001};
    const std::size_t announced = workspace_bytes(device(), shapes);
    const std::size_t before = device().budget().used_bytes();
    reserve_workspace(device(), shapes);
    EXPECT_EQ(device().budget().used_bytes() - before, announced);
    const DeviceFloats rows(exec(), 70, 9001, random_logits(70, 9001, 4));
    const DeviceFloats ids(exec(), 70, kMostTopLogits);
    const DeviceFloats values(exec(), 70, kMostTopLogits);
    const std::vector<std::int64_t> positions(70, 12);
    const std::size_t used = device().budget().used_bytes();
    logit_top_k(exec(), {.logits = rows.view(), .k = kMostTopLogits, .ids = as_ids(ids), .values = values.data()});
    logit_gumbel(exec(), {.logits = rows.view(),
                          .positions = positions.data(),
                          .seed = 1,
                          .temperature = 1.0,
                          .ids = as_ids(ids),
                          .scores = values.data()});
    logit_argmax(exec(), {.logits = rows.view(), .ids = as_ids(ids), .values = values.data()});
    logit_sum(exec(), {.logits = rows.view(), .greatest = values.data(), .sums = values.data() + 70});
    exec().stream.synchronize();
    EXPECT_EQ(device().budget().used_bytes(), used);
    EXPECT_EQ(device().budget().peak_bytes(), used);
}

}  // namespace
}  // namespace slipstream::testing_cuda
