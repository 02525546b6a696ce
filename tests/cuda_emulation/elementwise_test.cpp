// The small kernels on emulated blocks: against definitions in double, in place, over padded and misaligned rows, and
// the bits of a row the same whatever rows stand beside it.
#include <cmath>
#include <limits>
#include <numbers>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/elementwise_launch.h"
#include "tests/cuda_emulation/schedule.h"

namespace slipstream {
namespace {

std::vector<float> random_values(std::int64_t n, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& value : values) value = normal(random) * (random() % 97 == 0 ? 30.0F : 1.0F);
    return values;
}
float at(const std::vector<float>& values, std::int64_t i) {
    return values[i];
}
std::vector<float> unset(std::int64_t n) {
    return std::vector<float>(static_cast<std::size_t>(n), std::nanf(""));
}

struct Shape {
    std::int64_t n, d, stride;
};
constexpr Shape kShapes[] = {{1, 1, 1},       {1, 17, 20},     {9, 64, 64}, {7, 100, 101},
                             {3, 1024, 1024}, {2, 1028, 1032}, {513, 6, 8}};

// `shift`: floats that the first row is off a 16-byte border.
std::vector<float> norm(const std::vector<float>& x, const std::vector<float>& weight, const Shape& shape, int shift) {
    std::vector<float> padded(static_cast<std::size_t>(shift));
    padded.insert(padded.end(), x.begin(), x.end());
    std::vector<float> y = unset(shape.n * shape.stride);
    cuda::launch_rms_norm({.n_rows = shape.n,
                           .d = shape.d,
                           .x = padded.data() + shift,
                           .x_stride = shape.stride,
                           .weight = weight.data(),
                           .y = y.data(),
                           .y_stride = shape.stride,
                           .eps = 1e-5F},
                          nullptr);
    return y;
}

TEST(CudaElementwiseTest, RmsNormEqualsItsDefinition) {
    for (const Shape& shape : kShapes) {
        const std::vector<float> x = random_values(shape.n * shape.stride, 1);
        const std::vector<float> weight = random_values(shape.d, 2);
        const std::vector<float> y = norm(x, weight, shape, 0);
        for (std::int64_t row = 0; row < shape.n; ++row) {
            double sum = 0.0;
            for (std::int64_t i = 0; i < shape.d; ++i)
                sum += std::pow(static_cast<double>(at(x, row * shape.stride + i)), 2);
            const double scale = 1.0 / std::sqrt(sum / static_cast<double>(shape.d) + 1e-5);
            for (std::int64_t i = 0; i < shape.stride; ++i) {
                const float value = at(y, row * shape.stride + i);
                if (i >= shape.d) {
                    ASSERT_TRUE(std::isnan(value));
                    continue;
                }
                const double expected = at(x, row * shape.stride + i) * scale * at(weight, i);
                // Half of d / 32 + 8 roundings in the sum (all terms positive), four more behind it.
                ASSERT_NEAR(value, expected, std::abs(expected) * (static_cast<double>(shape.d) / 64 + 8) * 0x1p-24);
            }
        }
    }
}

TEST(CudaElementwiseTest, RmsNormOfARowIsTheSameInAnyCompany) {
    for (const Shape& shape : kShapes) {
        const std::vector<float> x = random_values(shape.n * shape.stride, 3);
        const std::vector<float> weight = random_values(shape.d, 4);
        const auto compare = [&](const std::vector<float>& a, const std::vector<float>& b) {
            for (std::int64_t i = 0; i < std::ssize(a); ++i) {
                if (i % shape.stride >= shape.d) continue;
                ASSERT_EQ(at(a, i), at(b, i)) << shape.d;
            }
        };
        const std::vector<float> whole = norm(x, weight, shape, 0);
        compare(whole, norm(x, weight, shape, 1));
        for (const emulation::Schedule schedule : emulation::kAllSchedules) {
            const emulation::ScopedSchedule scope(schedule);
            compare(whole, norm(x, weight, shape, 0));
        }
        const std::vector<float> last(x.end() - shape.stride, x.end());
        compare(norm(last, weight, {1, shape.d, shape.stride}, 0), {whole.end() - shape.stride, whole.end()});
    }
}

TEST(CudaElementwiseTest, RmsNormInPlaceAndOfASum) {
    const std::int64_t n = 5, d = 1300;
    const std::vector<float> x = random_values(n * d, 5), other = random_values(n * d, 6), weight = random_values(d, 7);
    std::vector<float> sum(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) sum[i] = x[i] + other[i];
    const std::vector<float> expected = norm(sum, weight, {n, d, d}, 0);
    std::vector<float> residual = x, y = unset(n * d);
    cuda::launch_rms_norm({.n_rows = n,
                           .d = d,
                           .x = residual.data(),
                           .x_stride = d,
                           .weight = weight.data(),
                           .y = y.data(),
                           .y_stride = d,
                           .eps = 1e-5F,
                           .add = other.data(),
                           .add_stride = d,
                           .sum = residual.data(),
                           .sum_stride = d},
                          nullptr);
    EXPECT_EQ(y, expected);
    EXPECT_EQ(residual, sum);
    cuda::launch_rms_norm({.n_rows = n,
                           .d = d,
                           .x = residual.data(),
                           .x_stride = d,
                           .weight = weight.data(),
                           .y = residual.data(),
                           .y_stride = d,
                           .eps = 1e-5F},
                          nullptr);
    EXPECT_EQ(residual, expected);
}

TEST(CudaElementwiseTest, RopeTurnsPairsByTheirAngle) {
    for (const std::int64_t n : {1, 3, 5000}) {
        const std::int64_t heads = n > 1000 ? 1 : 3, d = 10, rotated = 6, stride = heads * d + 2;
        const std::vector<float> table = random_values(n * rotated, 8);
        const std::vector<float> before = random_values(n * stride, 9);
        for (const cuda::RopePairs pairs : {cuda::RopePairs::Half, cuda::RopePairs::Interleaved}) {
            if (n > 1000 && pairs == cuda::RopePairs::Half) continue;  // more tokens than a grid is wide: one will do
            std::vector<float> x = before;
            cuda::launch_rope({.n_tokens = n,
                               .n_heads = static_cast<std::int32_t>(heads),
                               .head_dim = static_cast<std::int32_t>(d),
                               .n_rotated = static_cast<std::int32_t>(rotated),
                               .pairs = pairs,
                               .x = x.data(),
                               .x_stride = stride,
                               .cos_sin = table.data(),
                               .cos_sin_stride = rotated},
                              nullptr);
            std::vector<float> expected = before;
            for (std::int64_t t = 0; t < n; ++t)
                for (std::int64_t head = 0; head < heads; ++head)
                    for (std::int64_t i = 0; i < rotated / 2; ++i) {
                        const std::int64_t base = t * stride + head * d;
                        const bool half = pairs == cuda::RopePairs::Half;
                        const auto a = static_cast<std::size_t>(base + (half ? i : 2 * i));
                        const auto b = static_cast<std::size_t>(base + (half ? i + rotated / 2 : 2 * i + 1));
                        const float cosine = at(table, t * rotated + i);
                        const float sine = at(table, t * rotated + rotated / 2 + i);
                        expected[a] = before[a] * cosine - before[b] * sine;
                        expected[b] = before[a] * sine + before[b] * cosine;
                    }
            ASSERT_EQ(x, expected) << n;  // single operations, none fused
        }
    }
}

// By exp, which subtracts nothing where tanh is near -1.
double activated(cuda::GateKind kind, double v) {
    if (kind == cuda::GateKind::Silu) return v / (1 + std::exp(-v));
    return v / (1 + std::exp(-2 * std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
}

TEST(CudaElementwiseTest, GatesEqualTheirDefinitions) {
    for (const cuda::GateKind kind : {cuda::GateKind::Silu, cuda::GateKind::GeluTanh})
        for (const Shape& shape : kShapes) {
            std::vector<float> gate = random_values(shape.n * shape.stride, 10);
            const std::vector<float> up = random_values(shape.n * shape.stride, 11);
            const float hard[] = {500.0F, -500.0F, 0.0F, -88.5F, 88.5F, -87.0F};
            for (std::size_t i = 0; i < std::size(hard) && i < gate.size(); ++i) gate[i] = hard[i];
            std::vector<float> y = unset(shape.n * shape.stride);
            const auto run = [&](float* to) {
                cuda::launch_gated_activation({.n_rows = shape.n,
                                               .d = shape.d,
                                               .gate = gate.data(),
                                               .gate_stride = shape.stride,
                                               .up = up.data(),
                                               .up_stride = shape.stride,
                                               .y = to,
                                               .y_stride = shape.stride,
                                               .kind = kind},
                                              nullptr);
            };
            run(y.data());
            for (std::int64_t i = 0; i < std::ssize(y); ++i) {
                if (i % shape.stride >= shape.d) {
                    ASSERT_TRUE(std::isnan(at(y, i)));
                    continue;
                }
                const double v = at(gate, i);
                const double expected = activated(kind, v) * at(up, i);
                // exp(-v) has the error of -v log2(e) rounded once, up to 128 2^-24 of it; exp(-2 u) of one rounded
                // five times.
                ASSERT_NEAR(at(y, i), expected,
                            std::abs(expected) * (kind == cuda::GateKind::Silu ? 1e-5 : 5e-5) + 1e-34)
                    << v;
            }
            run(gate.data());
            for (std::int64_t i = 0; i < std::ssize(y); ++i)
                ASSERT_TRUE(i % shape.stride >= shape.d || at(gate, i) == at(y, i));
        }
}

TEST(CudaElementwiseTest, GeluOfInfinitiesIsItsLimit) {
    const std::vector<float> gate{INFINITY, -INFINITY, 1e30F, -1e30F, std::nanf("")};
    const std::vector<float> up(5, 2.0F);
    std::vector<float> y = unset(5);
    cuda::launch_gated_activation({.n_rows = 1,
                                   .d = 5,
                                   .gate = gate.data(),
                                   .gate_stride = 5,
                                   .up = up.data(),
                                   .up_stride = 5,
                                   .y = y.data(),
                                   .y_stride = 5,
                                   .kind = cuda::GateKind::GeluTanh},
                                  nullptr);
    EXPECT_EQ(y[0], INFINITY);
    EXPECT_NEAR(y[1], 0.0F, 1e-36F);
    EXPECT_EQ(y[2], 2e30F);
    EXPECT_NEAR(y[3], 0.0F, 1e-36F);
    EXPECT_TRUE(std::isnan(y[4]));
}

TEST(CudaElementwiseTest, SoftcapEqualsItsDefinition) {
    for (const Shape& shape : kShapes)
        for (const float cap : {30.0F, 0.7F}) {
            std::vector<float> y = random_values(shape.n * shape.stride, 14);
            const float hard[] = {0.0F, 1e-30F, -3e-8F, 1e4F, -3e38F, INFINITY, -INFINITY};
            for (std::size_t i = 0; i < std::size(hard) && i < y.size(); ++i) y[i] = hard[i];
            const std::vector<float> before = y;
            cuda::launch_softcap({.n_rows = shape.n, .d = shape.d, .y = y.data(), .y_stride = shape.stride, .cap = cap},
                                 nullptr);
            for (std::int64_t i = 0; i < std::ssize(y); ++i) {
                const double x = at(before, i);
                const double expected = i % shape.stride >= shape.d
                                            ? x
                                            : static_cast<double>(cap) * std::tanh(x / static_cast<double>(cap));
                ASSERT_TRUE(at(y, i) == expected || std::abs(at(y, i) - expected) <= std::abs(expected) * 0x1p-21) << x;
            }
        }
}

TEST(CudaElementwiseTest, AddsRows) {
    for (const Shape& shape : kShapes) {
        const std::vector<float> x = random_values(shape.n * shape.stride, 12);
        std::vector<float> y = random_values(shape.n * shape.stride, 13);
        std::vector<float> expected = y;
        for (std::int64_t i = 0; i < std::ssize(y); ++i)
            if (i % shape.stride < shape.d) expected[i] += at(x, i);
        cuda::launch_add({.n_rows = shape.n,
                          .d = shape.d,
                          .x = x.data(),
                          .x_stride = shape.stride,
                          .y = y.data(),
                          .y_stride = shape.stride},
                         nullptr);
        EXPECT_EQ(y, expected) << shape.d;
    }
}

}  // namespace
}  // namespace slipstream
