// The small ops against double-precision definitions; every form bit-equal to the scalar one.
#include "kernels/elementwise.h"

#include <cmath>
#include <numbers>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/attention.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu_device.h"

namespace slipstream {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_values(std::size_t n, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(n);
    for (float& value : values) value = normal(random) * (random() % 97 == 0 ? 30.0F : 1.0F);
    return values;
}

// v / 2 * (1 + tanh(u)), written by exp: 1 + tanh(u) would lose all digits of a negative u.
double gelu_tanh(double v) {
    if (std::isinf(v)) return v > 0 ? v : 0.0;
    return v / (1 + std::exp(-2 * std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
}

class ElementwiseTest : public testing::TestWithParam<CpuForm> {
protected:
    void SetUp() override {
        if (!cpu_has_form(GetParam())) GTEST_SKIP() << "this machine has no " << cpu_form_name(GetParam());
        device_ = std::make_unique<CpuDevice>(CpuDeviceOptions{.n_threads = 2, .form = GetParam()});
        stream_ = device_->make_stream(StreamKind::Compute);
    }
    ExecRef exec() { return {*device_, *stream_}; }
    std::unique_ptr<CpuDevice> device_;
    std::unique_ptr<Stream> stream_;
};

constexpr std::pair<std::int64_t, std::int64_t> kShapes[] = {{0, 8},   {1, 1},    {1, 17},  {3, 64},
                                                             {7, 100}, {513, 33}, {2, 4096}};

TEST_P(ElementwiseTest, RmsNormEqualsItsDefinition) {
    for (const auto& [n, d] : kShapes) {
        const std::vector<float> x = random_values(static_cast<std::size_t>(n * d), 1);
        const std::vector<float> weight = random_values(static_cast<std::size_t>(d), 2);
        std::vector<float> y(static_cast<std::size_t>(n * d) + 16, kNan);
        const ConstTensorView weight_view =
            vector_view(reinterpret_cast<const std::byte*>(weight.data()), DType::F32, d);
        rms_norm(
            exec(),
            {.x = matrix_view(x.data(), n, d), .weight = weight_view, .y = matrix_view(y.data(), n, d), .eps = 1e-5F});
        for (std::int64_t row = 0; row < n; ++row) {
            double sum = 0.0;
            for (std::int64_t i = 0; i < d; ++i) sum += static_cast<double>(x[row * d + i]) * x[row * d + i];
            const double scale = 1.0 / std::sqrt(sum / static_cast<double>(d) + 1e-5);
            for (std::int64_t i = 0; i < d; ++i) {
                const auto at = static_cast<std::size_t>(row * d + i);
                const double expected = x[at] * scale * weight[i];
                // Half of d / 16 + 6 roundings in the sum (all terms positive), four more behind it.
                EXPECT_NEAR(y[at], expected, std::abs(expected) * (static_cast<double>(d) / 32 + 8) * 0x1p-24)
                    << n << "x" << d;
            }
        }
        for (std::size_t i = static_cast<std::size_t>(n * d); i < y.size(); ++i) EXPECT_TRUE(std::isnan(y[i]));
        std::vector<float> in_place = x;
        rms_norm(exec(), {.x = matrix_view(static_cast<const float*>(in_place.data()), n, d),
                          .weight = weight_view,
                          .y = matrix_view(in_place.data(), n, d),
                          .eps = 1e-5F});
        y.resize(in_place.size());
        EXPECT_EQ(in_place, y);
    }
}

TEST_P(ElementwiseTest, RmsNormWithoutWeightsHasTheBitsOfOnes) {
    for (const std::int64_t d : {1, 17, 512}) {
        std::vector<float> x(static_cast<std::size_t>(3 * d));
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 13) - 5.5F;
        const std::vector<float> ones(static_cast<std::size_t>(d), 1.0F);
        std::vector<float> expected(x.size(), kNan);
        rms_norm(exec(), {.x = matrix_view(x.data(), 3, d),
                          .weight = vector_view(reinterpret_cast<const std::byte*>(ones.data()), DType::F32, d),
                          .y = matrix_view(expected.data(), 3, d)});
        std::vector<float> found(x.size(), kNan);
        rms_norm(exec(), {.x = matrix_view(x.data(), 3, d), .weight = {}, .y = matrix_view(found.data(), 3, d)});
        EXPECT_EQ(found, expected) << d;
    }
}

TEST_P(ElementwiseTest, SiluEqualsItsDefinition) {
    for (const auto& [n, d] : kShapes) {
        std::vector<float> gate = random_values(static_cast<std::size_t>(n * d), 3);
        const std::vector<float> up = random_values(static_cast<std::size_t>(n * d), 4);
        if (gate.size() > 20) gate[3] = 500.0F, gate[4] = -500.0F, gate[5] = 0.0F, gate[6] = -88.5F;
        std::vector<float> y(gate.size(), kNan);
        gated_activation(exec(), {.gate = matrix_view(static_cast<const float*>(gate.data()), n, d),
                                  .up = matrix_view(up.data(), n, d),
                                  .y = matrix_view(y.data(), n, d)});
        for (std::size_t i = 0; i < y.size(); ++i) {
            const double expected = gate[i] / (1.0 + std::exp(-static_cast<double>(gate[i]))) * up[i];
            EXPECT_NEAR(y[i], expected, std::abs(expected) * 1e-6 + 1e-34) << i << " of " << gate[i];
        }
    }
}

TEST_P(ElementwiseTest, SigmoidEqualsItsDefinition) {
    std::vector<float> gate = random_values(300, 3);
    gate[3] = 500.0F, gate[4] = -500.0F, gate[5] = 0.0F, gate[6] = -88.5F, gate[7] = 20.0F;
    const std::vector<float> up = random_values(300, 4);
    std::vector<float> y(gate.size(), kNan);
    gated_activation(exec(), {.gate = matrix_view(static_cast<const float*>(gate.data()), 3, 100),
                              .up = matrix_view(up.data(), 3, 100),
                              .y = matrix_view(y.data(), 3, 100),
                              .kind = GatedActivation::Sigmoid});
    for (std::size_t i = 0; i < y.size(); ++i) {
        const double expected = up[i] / (1.0 + std::exp(-static_cast<double>(gate[i])));
        EXPECT_NEAR(y[i], expected, std::abs(expected) * 1e-6 + 1e-36) << i << " of " << gate[i];
    }
}

TEST_P(ElementwiseTest, ClampedSiluEqualsItsDefinition) {
    std::vector<float> gate = random_values(300, 3);
    std::vector<float> up = random_values(300, 4);
    gate[3] = 500.0F, gate[4] = -500.0F, gate[5] = 0.0F, gate[6] = -52.0F, gate[7] = 7.5F, gate[8] = 6.5F;
    up[9] = 500.0F, up[10] = -500.0F, up[11] = -1.0F, up[12] = 7.5F, up[13] = -7.5F;
    std::vector<float> y(gate.size(), kNan);
    gated_activation(exec(), {.gate = matrix_view(static_cast<const float*>(gate.data()), 3, 100),
                              .up = matrix_view(static_cast<const float*>(up.data()), 3, 100),
                              .y = matrix_view(y.data(), 3, 100),
                              .kind = GatedActivation::ClampedSilu,
                              .limit = 7.0F});
    for (std::size_t i = 0; i < y.size(); ++i) {
        const double g = std::min(static_cast<double>(gate[i]), 7.0);
        const double u = std::clamp(static_cast<double>(up[i]), -7.0, 7.0);
        const double expected = g / (1.0 + std::exp(-1.702 * g)) * (u + 1.0);
        EXPECT_NEAR(y[i], expected, std::abs(expected) * 2e-5 + 1e-34) << i << " of " << gate[i] << ", " << up[i];
    }
    EXPECT_DEATH(gated_activation(exec(), {.gate = matrix_view(static_cast<const float*>(gate.data()), 3, 100),
                                           .up = matrix_view(static_cast<const float*>(up.data()), 3, 100),
                                           .y = matrix_view(y.data(), 3, 100),
                                           .kind = GatedActivation::ClampedSilu}),
                 "clamped to 0");
}

// A factor of a token multiplies its cosines and sines; a scale the numbers that are added.
TEST_P(ElementwiseTest, FactorsMultiply) {
    const std::int32_t positions[] = {0, 5, 70000};
    const double inverse[] = {1.0, 0.03};
    const float factors[] = {1.0F, 0.75F, 3.0F};
    std::vector<float> plain(12, kNan);
    std::vector<float> grown(12, kNan);
    for (const bool grows : {false, true})
        rope_table(exec(), {.positions = positions,
                            .inverse_frequency = inverse,
                            .magnitude = 1.5F,
                            .factors = grows ? factors : nullptr,
                            .cos_sin = matrix_view(grows ? grown.data() : plain.data(), 3, 4)});
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_FLOAT_EQ(grown[i], plain[i] * factors[i / 4]);
    std::vector<float> y{1.0F, 2.0F, 3.0F, 4.0F};
    const std::vector<float> x{8.0F, 16.0F, 24.0F, -32.0F};
    add(exec(), {.x = matrix_view(x.data(), 2, 2), .y = matrix_view(y.data(), 2, 2), .scale = 0.25F});
    EXPECT_EQ(y, (std::vector<float>{3.0F, 6.0F, 9.0F, -4.0F}));
}

// What rounding does to a result of gelu_tanh: v / (1 + exp(-2 u)) with 2 u rounded four times; where it is less than
// float's smallest numbers the exponential is cut off.
double gelu_error(double v) {
    if (std::isinf(v)) return 2e-37;
    const double twice_u = 2 * std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v);
    const double factor = v > 0 && twice_u > 20 ? 8 : 4 * std::abs(twice_u) + 8;
    return std::abs(gelu_tanh(v)) * factor * 0x1p-24 + 2e-37;
}

TEST_P(ElementwiseTest, GeluTanhEqualsItsDefinition) {
    std::vector<float> gate;
    for (float v = -12.0F; v < 12.0F; v += 0x1.7p-9F) gate.push_back(v);
    for (const float v : {0.0F, 1e-38F, 3e-20F, 1e-5F, 9.99F, 10.0F, 10.5F, 300.0F, 1e13F, 3e38F, INFINITY}) {
        gate.push_back(v);
        gate.push_back(-v);
    }
    const auto d = std::ssize(gate);
    const std::vector<float> up(gate.size(), 1.0F);
    std::vector<float> y(gate.size() + 16, kNan);
    gated_activation(exec(), {.gate = matrix_view(static_cast<const float*>(gate.data()), 1, d),
                              .up = matrix_view(up.data(), 1, d),
                              .y = matrix_view(y.data(), 1, d),
                              .kind = GatedActivation::GeluTanh});
    for (std::size_t i = 0; i < gate.size(); ++i) {
        const auto v = static_cast<double>(gate[i]);
        if (std::isinf(v) && v > 0)
            EXPECT_EQ(y[i], gate[i]);
        else
            EXPECT_NEAR(y[i], gelu_tanh(v), gelu_error(v)) << "of " << v;
    }
    for (std::size_t i = gate.size(); i < y.size(); ++i) EXPECT_TRUE(std::isnan(y[i]));
    // Rows of any length, in place, times `up`; a NaN stays one, and changes no other element.
    for (const auto& [n, cols] : kShapes) {
        std::vector<float> x = random_values(static_cast<std::size_t>(n * cols), 3);
        const std::vector<float> times = random_values(x.size(), 4);
        if (x.size() > 20) x[17] = kNan;
        const std::vector<float> before = x;
        gated_activation(exec(), {.gate = matrix_view(static_cast<const float*>(x.data()), n, cols),
                                  .up = matrix_view(times.data(), n, cols),
                                  .y = matrix_view(x.data(), n, cols),
                                  .kind = GatedActivation::GeluTanh});
        for (std::size_t i = 0; i < x.size(); ++i) {
            if (std::isnan(before[i])) {
                EXPECT_TRUE(std::isnan(x[i]));
                continue;
            }
            const auto v = static_cast<double>(before[i]);
            const double expected = gelu_tanh(v) * times[i];
            EXPECT_NEAR(x[i], expected, gelu_error(v) * std::abs(times[i]) + std::abs(expected) * 0x1p-24) << v;
        }
    }
}

TEST_P(ElementwiseTest, SoftcapEqualsItsDefinition) {
    // The last row is cut into ranges for threads.
    for (const auto& [n, d] : {std::pair<std::int64_t, std::int64_t>{0, 8}, {1, 1}, {3, 17}, {7, 100}, {2, 20011}})
        for (const float cap : {30.0F, 50.0F, 0.7F}) {
            const std::int64_t stride = d + 3;
            std::vector<float> y = random_values(static_cast<std::size_t>(n * stride), 9);
            const float hard[] = {0.0F, 1e-30F, -3e-8F, 29.9F, 1e4F, 3e38F, -3e38F, INFINITY, -INFINITY, kNan};
            for (std::size_t i = 0; i < std::size(hard) && i + 3 < y.size(); ++i) y[i] = hard[i];
            const std::vector<float> before = y;
            softcap(exec(), {.y = {.data = reinterpret_cast<std::byte*>(y.data()),
                                   .dtype = DType::F32,
                                   .rank = 2,
                                   .shape = {n, d},
                                   .row_stride_bytes = static_cast<std::size_t>(stride) * sizeof(float)},
                             .cap = cap});
            for (std::size_t i = 0; i < y.size(); ++i) {
                if (std::isnan(before[i])) {
                    EXPECT_TRUE(std::isnan(y[i]));
                    continue;
                }
                if (static_cast<std::int64_t>(i) % stride >= d) {
                    EXPECT_EQ(y[i], before[i]);  // between rows
                    continue;
                }
                const double expected = static_cast<double>(cap) * std::tanh(before[i] / static_cast<double>(cap));
                EXPECT_NEAR(y[i], expected, std::abs(expected) * 0x1p-21) << "of " << before[i] << ", cap " << cap;
            }
        }
    std::vector<float> y(4);
    for (const float cap : {0.0F, -1.0F, INFINITY, kNan})
        EXPECT_DEATH(softcap(exec(), {.y = matrix_view(y.data(), 2, 2), .cap = cap}), "softcap .* of \\[2, 2\\]");
}

TEST_P(ElementwiseTest, EveryFormGivesTheScalarBits) {
    CpuDevice scalar({.n_threads = 1, .form = CpuForm::Scalar});
    const auto stream = scalar.make_stream(StreamKind::Compute);
    const std::int64_t n = 5, d = 515;
    const std::vector<float> x = random_values(static_cast<std::size_t>(n * d), 5);
    const std::vector<float> weight = random_values(static_cast<std::size_t>(d), 6);
    std::vector<float> plain(x.size()), form(x.size());
    const auto run = [&](ExecRef where, std::vector<float>& y) {
        rms_norm(where, {.x = matrix_view(x.data(), n, d),
                         .weight = vector_view(reinterpret_cast<const std::byte*>(weight.data()), DType::F32, d),
                         .y = matrix_view(y.data(), n, d),
                         .eps = 1e-6F});
        for (const GatedActivation kind :
             {GatedActivation::Silu, GatedActivation::GeluTanh, GatedActivation::Sigmoid, GatedActivation::ClampedSilu})
            gated_activation(where, {.gate = matrix_view(static_cast<const float*>(y.data()), n, d),
                                     .up = matrix_view(x.data(), n, d),
                                     .y = matrix_view(y.data(), n, d),
                                     .kind = kind,
                                     .limit = 0.5F});
        softcap(where, {.y = matrix_view(y.data(), n, d), .cap = 2.0F});
    };
    run({scalar, *stream}, plain);
    run(exec(), form);
    EXPECT_EQ(form, plain);
}

TEST_P(ElementwiseTest, RopeTurnsPairsByTheirAngle) {
    const std::int64_t n = 3, heads = 2, d = 10, rotated = 6;
    const std::vector<std::int32_t> positions{0, 7, 1000000};
    const std::vector<double> frequency{1.0, 0.1, 1e-4};
    std::vector<float> table(static_cast<std::size_t>(n * rotated), kNan);
    rope_table(exec(), {.positions = positions.data(),
                        .inverse_frequency = frequency.data(),
                        .magnitude = 1.25F,
                        .cos_sin = matrix_view(table.data(), n, rotated)});
    for (const RopeLayout layout : {RopeLayout::Half, RopeLayout::Interleaved}) {
        const std::vector<float> before = random_values(static_cast<std::size_t>(n * heads * d), 8);
        std::vector<float> x = before;
        rope(exec(), {.x = matrix_view(x.data(), n, heads * d),
                      .cos_sin = matrix_view(static_cast<const float*>(table.data()), n, rotated),
                      .head_dim = d,
                      .layout = layout});
        for (std::int64_t t = 0; t < n; ++t)
            for (std::int64_t head = 0; head < heads; ++head) {
                const auto base = static_cast<std::size_t>((t * heads + head) * d);
                for (std::size_t i = 0; i < 3; ++i) {
                    const std::size_t a = base + (layout == RopeLayout::Half ? i : 2 * i);
                    const std::size_t b = base + (layout == RopeLayout::Half ? i + 3 : 2 * i + 1);
                    const double angle = positions[t] * frequency[i];
                    EXPECT_NEAR(x[a], 1.25 * (before[a] * std::cos(angle) - before[b] * std::sin(angle)), 1e-5);
                    EXPECT_NEAR(x[b], 1.25 * (before[a] * std::sin(angle) + before[b] * std::cos(angle)), 1e-5);
                }
                for (std::size_t i = 6; i < 10; ++i) EXPECT_EQ(x[base + i], before[base + i]);
            }
    }
}

TEST_P(ElementwiseTest, AddAndEmbed) {
    std::vector<float> y{1, 2, 3, 4};
    const std::vector<float> x{10, 20, 30, 40};
    add(exec(), {.x = matrix_view(x.data(), 2, 2), .y = matrix_view(y.data(), 2, 2)});
    EXPECT_EQ(y, (std::vector<float>{11, 22, 33, 44}));
    const float factor = 0.3F;
    add(exec(), {.x = matrix_view(x.data(), 2, 2),
                 .y = matrix_view(y.data(), 2, 2),
                 .factor = vector_view(reinterpret_cast<const std::byte*>(&factor), DType::F32, 1)});
    EXPECT_EQ(y, (std::vector<float>{21 * 0.3F, 42 * 0.3F, 63 * 0.3F, 84 * 0.3F}));
    const std::vector<std::int32_t> tokens{1, 0, 1};
    std::vector<float> rows(6, kNan);
    embed(exec(), {.table = matrix_view(x.data(), 2, 2), .tokens = tokens.data(), .y = matrix_view(rows.data(), 3, 2)});
    EXPECT_EQ(rows, (std::vector<float>{30, 40, 10, 20, 30, 40}));
    embed(exec(), {.table = matrix_view(x.data(), 2, 2),
                   .tokens = tokens.data(),
                   .y = matrix_view(rows.data(), 3, 2),
                   .scale = 0.3F});
    EXPECT_EQ(rows, (std::vector<float>{30 * 0.3F, 40 * 0.3F, 10 * 0.3F, 20 * 0.3F, 30 * 0.3F, 40 * 0.3F}));
    EXPECT_DEATH(
        embed(exec(),
              {.table = matrix_view(x.data(), 1, 2), .tokens = tokens.data(), .y = matrix_view(rows.data(), 3, 2)}),
        "token 1 of a vocabulary of 1");
}

// The fused op is the three it stands for, bit for bit.
TEST_P(ElementwiseTest, RotateWriteIsRopeAndKvWrite) {
    constexpr std::int64_t kTokens = 3;
    const std::int32_t rows[kTokens] = {4, 0, 2};
    for (const DType type : {DType::F16, DType::F32})
        for (const std::int64_t rotated : {16, 8}) {
            const KvLayout shape{.n_kv_heads = 2, .head_dim = 16, .dtype = type};
            const std::vector<float> angles = random_values(static_cast<std::size_t>(kTokens * rotated), 1);
            const std::vector<float> v = random_values(kTokens * 32, 2);
            std::vector<float> q[2] = {random_values(kTokens * 64, 3), random_values(kTokens * 64, 3)};
            std::vector<float> k[2] = {random_values(kTokens * 32, 4), random_values(kTokens * 32, 4)};
            std::vector<std::byte> keys[2];
            std::vector<std::byte> values[2];
            const std::vector<float> q_angles = random_values(static_cast<std::size_t>(kTokens * rotated), 5);
            const ConstTensorView cos_sin = matrix_view(angles.data(), kTokens, rotated);
            const ConstTensorView of_q = matrix_view(q_angles.data(), kTokens, rotated);
            for (const int way : {0, 1}) {
                keys[way].assign(5 * shape.scratch_row_bytes(), std::byte{0x5a});
                values[way] = keys[way];
                const TensorView q_view = matrix_view(q[way].data(), kTokens, 64);
                const TensorView k_view = matrix_view(k[way].data(), kTokens, 32);
                const ConstTensorView v_view = matrix_view(v.data(), kTokens, 32);
                if (way == 1) {
                    rotate_write(exec(), {.shape = shape,
                                          .q = q_view,
                                          .k = k_view,
                                          .v = v_view,
                                          .cos_sin = cos_sin,
                                          .layout = RopeLayout::Interleaved,
                                          .scratch_k = keys[way].data(),
                                          .scratch_v = values[way].data(),
                                          .scratch_rows = rows,
                                          .q_cos_sin = of_q});
                    continue;
                }
                for (const auto& [x, by] : {std::pair(q_view, of_q), std::pair(k_view, cos_sin)})
                    rope(exec(), {.x = x, .cos_sin = by, .head_dim = 16, .layout = RopeLayout::Interleaved});
                kv_write(exec(), {.shape = shape,
                                  .k = k_view,
                                  .v = v_view,
                                  .scratch_k = keys[way].data(),
                                  .scratch_v = values[way].data(),
                                  .scratch_rows = rows});
            }
            EXPECT_EQ(q[0], q[1]);
            EXPECT_NE(q[0], random_values(kTokens * 64, 3));
            EXPECT_EQ(keys[0], keys[1]);
            EXPECT_EQ(values[0], values[1]);
        }
}

INSTANTIATE_TEST_SUITE_P(Forms, ElementwiseTest, testing::ValuesIn(kCpuForms),
                         [](const auto& form) { return std::string(cpu_form_name(form.param)); });

TEST(Tanh, HasASmallRelativeErrorEverywhere) {
    double worst = 0.0;
    for (std::uint32_t bits = 0x00800000; bits < 0x42000000; bits += 1009) {  // from the smallest normal to 32
        const auto x = std::bit_cast<float>(bits);
        const double truth = std::tanh(static_cast<double>(x));
        worst = std::max(worst, std::abs(cpu::tanh_float(x) - truth) / truth);
        ASSERT_EQ(cpu::tanh_float(-x), -cpu::tanh_float(x));
    }
    EXPECT_LT(worst, 0x1p-22);
    EXPECT_EQ(cpu::tanh_float(INFINITY), 1.0F);
    EXPECT_EQ(cpu::tanh_float(-INFINITY), -1.0F);
    EXPECT_EQ(cpu::tanh_float(3e38F), 1.0F);
    EXPECT_TRUE(std::signbit(cpu::tanh_float(-0.0F)));
    EXPECT_TRUE(std::isnan(cpu::tanh_float(kNan)));
}

TEST(Exp, WithinTwoUlpOfTheTruth) {
    EXPECT_EQ(cpu::exp_float(0.0F), 1.0F);
    EXPECT_EQ(cpu::exp_float(-std::numeric_limits<float>::infinity()), 0.0F);
    EXPECT_TRUE(std::isnan(cpu::exp_float(kNan)));
    double worst = 0.0;
    for (float x = -87.0F; x <= 88.0F; x += 0.00137F) {
        const double truth = std::exp(static_cast<double>(x));
        worst = std::max(worst, std::abs(cpu::exp_float(x) - truth) / truth);
    }
    EXPECT_LT(worst, 2.0 * 0x1p-23);
}

}  // namespace
}  // namespace slipstream
