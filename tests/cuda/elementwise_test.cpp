// The small ops of the CUDA backend: near the scalar CPU's, and E1 bit for bit.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/attention.h"
#include "kernels/base/float16.h"
#include "kernels/cpu_device.h"
#include "kernels/elementwise.h"
#include "tests/cuda/device_array.h"
#include "tests/cuda/under_test.h"

namespace slipstream::testing_cuda {
namespace {

std::vector<float> random_floats(std::int64_t n, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& value : values) value = normal(random) * (random() % 41 == 0 ? 30.0F : 1.0F);
    return values;
}

TensorView view_of(std::vector<float>& values, std::int64_t rows, std::int64_t cols) {
    return matrix_view(values.data(), rows, cols);
}

void expect_near(const std::vector<float>& found, const std::vector<float>& exact, double relative, double absolute) {
    ASSERT_EQ(found.size(), exact.size());
    for (std::size_t i = 0; i < found.size(); ++i)
        ASSERT_LE(std::fabs(static_cast<double>(found[i]) - exact[i]), relative * std::fabs(exact[i]) + absolute) << i;
}

class CudaElementwise : public CudaOps {
protected:
    ExecRef cpu() { return {cpu_device_, *cpu_stream_}; }

private:
    CpuDevice cpu_device_{{.form = CpuForm::Scalar}};
    std::unique_ptr<Stream> cpu_stream_ = cpu_device_.make_stream(StreamKind::Compute);
};

constexpr std::int64_t kRows[] = {0, 1, 2, 7, 65};

TEST_F(CudaElementwise, RmsNorm) {
    for (const std::int64_t d : {1, 7, 64, 100, 2048, 5120}) {
        const std::vector<float> x = random_floats(65 * d, 1);
        std::vector<float> weight = random_floats(d, 2);
        std::vector<float> expected(x.size());
        std::vector<float> x_host = x;
        rms_norm(cpu(), {.x = view_of(x_host, 65, d),
                         .weight = vector_view(reinterpret_cast<std::byte*>(weight.data()), DType::F32, d),
                         .y = view_of(expected, 65, d)});
        const DeviceFloats w(exec(), 1, d, weight);
        for (const std::int64_t n : kRows) {
            const DeviceFloats x_device(exec(), n, d, std::vector<float>(x.begin(), x.begin() + n * d), 4);
            const DeviceFloats y(exec(), n, d, 2);
            const ConstTensorView weight_view = vector_view(w.view().data, DType::F32, d);
            rms_norm(exec(), {.x = x_device.view(), .weight = weight_view, .y = y.view()});
            expect_near(y.read(), {expected.begin(), expected.begin() + n * d}, 1e-5, 1e-6);
            if (HasFatalFailure()) return;
            rms_norm(exec(), {.x = x_device.view(), .weight = weight_view, .y = x_device.view()});
            ASSERT_TRUE(same_bits(x_device.read(), y.read())) << "in place, d " << d;
        }
    }
}

TEST_F(CudaElementwise, RopeInBothLayouts) {
    for (const RopeLayout layout : {RopeLayout::Interleaved, RopeLayout::Half})
        for (const auto& [rotated, n] : {std::pair{64, 9}, {32, 9}, {64, 0}, {64, 1}, {32, 2}, {64, 65}, {64, 131}}) {
            std::vector<std::int32_t> positions;
            for (std::int32_t i = 0; i < n; ++i) positions.push_back(i * 15013);
            std::vector<double> frequency;
            for (std::int64_t i = 0; i < rotated / 2; ++i)
                frequency.push_back(std::pow(1e-4, 2.0 * static_cast<double>(i) / static_cast<double>(rotated)));
            std::vector<float> angles(static_cast<std::size_t>(n * rotated));
            std::vector<float> x = random_floats(n * 3 * 64, 3);
            const DeviceFloats angles_device(exec(), n, rotated);
            const DeviceFloats x_device(exec(), n, 3 * 64, x);
            rope_table(exec(), {.positions = positions.data(),
                                .inverse_frequency = frequency.data(),
                                .magnitude = 1.1F,
                                .cos_sin = angles_device.view()});
            rope(exec(), {.x = x_device.view(), .cos_sin = angles_device.view(), .head_dim = 64, .layout = layout});
            rope_table(cpu(), {.positions = positions.data(),
                               .inverse_frequency = frequency.data(),
                               .magnitude = 1.1F,
                               .cos_sin = view_of(angles, n, rotated)});
            rope(
                cpu(),
                {.x = view_of(x, n, 3 * 64), .cos_sin = view_of(angles, n, rotated), .head_dim = 64, .layout = layout});
            expect_near(angles_device.read(), angles, 0.0, 3e-7);
            expect_near(x_device.read(), x, 1e-6, 2e-5);
        }
}

// One kernel for what rope (twice) and kv_write do: every bit of theirs, in every type, also where heads turn in part.
TEST_F(CudaElementwise, RotateWriteIsRopeAndKvWrite) {
    constexpr std::int64_t kTokens = 7;
    constexpr std::int64_t kScratchRows = 9;
    const std::vector<std::int32_t> rows{8, 0, 3, 4, 1, 7, 5};
    for (const DType type : {DType::F16, DType::BF16, DType::F32, DType::Q8_0})
        for (const RopeLayout layout : {RopeLayout::Interleaved, RopeLayout::Half})
            for (const std::int64_t rotated : {64, 32, 0}) {
                const KvLayout shape{.n_kv_heads = 2, .head_dim = 64, .dtype = type};
                const std::vector<float> angles = random_floats(kTokens * rotated, 8);
                const std::vector<float> q = random_floats(kTokens * 5 * 64, 9);
                const std::vector<float> k = random_floats(kTokens * 2 * 64, 10);
                const DeviceFloats cos_sin(exec(), kTokens, rotated, angles, 2);
                const DeviceFloats q_cos_sin(exec(), kTokens, rotated, random_floats(kTokens * rotated, 12), 1);
                const DeviceFloats v(exec(), kTokens, 2 * 64, random_floats(kTokens * 2 * 64, 11), 1);
                const std::vector<std::byte> fresh(kScratchRows * shape.scratch_row_bytes(), std::byte{0x5a});
                std::vector<float> turned[2];
                std::vector<std::byte> keys[2];
                std::vector<std::byte> values[2];
                for (const int way : {0, 1}) {
                    const DeviceFloats q_device(exec(), kTokens, 5 * 64, q, 3);
                    const DeviceFloats k_device(exec(), kTokens, 2 * 64, k);
                    const Buffer scratch_k = upload_bytes(exec(), fresh);
                    const Buffer scratch_v = upload_bytes(exec(), fresh);
                    if (way == 0) {
                        for (const auto& [x, by] : {std::pair(&q_device, &q_cos_sin), std::pair(&k_device, &cos_sin)})
                            rope(exec(), {.x = x->view(), .cos_sin = by->view(), .head_dim = 64, .layout = layout});
                        kv_write(exec(), {.shape = shape,
                                          .k = k_device.view(),
                                          .v = v.view(),
                                          .scratch_k = scratch_k.data(),
                                          .scratch_v = scratch_v.data(),
                                          .scratch_rows = rows.data()});
                    } else {
                        rotate_write(exec(), {.shape = shape,
                                              .q = q_device.view(),
                                              .k = k_device.view(),
                                              .v = v.view(),
                                              .cos_sin = cos_sin.view(),
                                              .layout = layout,
                                              .scratch_k = scratch_k.data(),
                                              .scratch_v = scratch_v.data(),
                                              .scratch_rows = rows.data(),
                                              .q_cos_sin = q_cos_sin.view()});
                    }
                    turned[way] = q_device.read();
                    keys[way] = download_bytes(exec(), scratch_k.data(), fresh.size());
                    values[way] = download_bytes(exec(), scratch_v.data(), fresh.size());
                }
                ASSERT_TRUE(same_bits(turned[0], turned[1])) << dtype_name(type) << " " << rotated;
                ASSERT_EQ(keys[0], keys[1]) << dtype_name(type) << " " << rotated;
                ASSERT_EQ(values[0], values[1]) << dtype_name(type) << " " << rotated;
                ASSERT_NE(keys[0], fresh);
            }
}

TEST_F(CudaElementwise, GatesAndAdd) {
    for (const std::int64_t d : {1, 63, 768, 5003})
        for (const std::int64_t n : kRows) {
            std::vector<float> gate = random_floats(n * d, 4);
            std::vector<float> up = random_floats(n * d, 5);
            const DeviceFloats gate_device(exec(), n, d, gate);
            const DeviceFloats up_device(exec(), n, d, up, 3);
            const DeviceFloats y(exec(), n, d, 1);
            for (const GatedActivation kind : {GatedActivation::Silu, GatedActivation::GeluTanh,
                                               GatedActivation::Sigmoid, GatedActivation::ClampedSilu}) {
                gated_activation(
                    exec(),
                    {.gate = gate_device.view(), .up = up_device.view(), .y = y.view(), .kind = kind, .limit = 0.5F});
                std::vector<float> expected(gate.size());
                gated_activation(cpu(), {.gate = view_of(gate, n, d),
                                         .up = view_of(up, n, d),
                                         .y = view_of(expected, n, d),
                                         .kind = kind,
                                         .limit = 0.5F});
                expect_near(y.read(), expected, 4e-6, 1e-6);
            }
            for (const float scale : {1.0F, 0.22F}) {
                add(exec(), {.x = up_device.view(), .y = gate_device.view(), .scale = scale});
                add(cpu(), {.x = view_of(up, n, d), .y = view_of(gate, n, d), .scale = scale});
                ASSERT_TRUE(same_bits(gate_device.read(), gate)) << d << " " << scale;
            }
        }
}

TEST_F(CudaElementwise, Softcap) {
    for (const std::int64_t d : {1, 63, 768, 5003})
        for (const std::int64_t n : kRows) {
            std::vector<float> y = random_floats(n * d, 6);
            const DeviceFloats y_device(exec(), n, d, y, 3);
            softcap(exec(), {.y = y_device.view(), .cap = 20.0F});
            for (float& value : y) value = static_cast<float>(20.0 * std::tanh(static_cast<double>(value) / 20.0));
            expect_near(y_device.read(), y, 0x1p-21, 0.0);
        }
}

// Rows gathered on the host, of types that are decoded there.
TEST_F(CudaElementwise, EmbedGathersRows) {
    std::vector<BFloat16> table(50 * 96);
    std::mt19937 random(7);
    for (BFloat16& value : table) value = to_bfloat16(static_cast<float>(random() % 1000) / 100.0F);
    const ConstTensorView view = matrix_view(reinterpret_cast<const std::byte*>(table.data()), DType::BF16, 50, 96);
    for (const std::int64_t n : kRows) {
        std::vector<std::int32_t> tokens;
        for (std::int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<std::int32_t>(random() % 50));
        const DeviceFloats y(exec(), n, 96);
        embed(exec(), {.table = view, .tokens = tokens.data(), .y = y.view()});
        const std::vector<float> found = y.read();
        for (std::size_t i = 0; i < found.size(); ++i)
            ASSERT_EQ(found[i], to_float(table[static_cast<std::size_t>(tokens[i / 96]) * 96 + i % 96])) << i;
        embed(exec(), {.table = view, .tokens = tokens.data(), .y = y.view(), .scale = 1.7F});
        const std::vector<float> scaled = y.read();
        for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(scaled[i], found[i] * 1.7F) << i;
    }
}

}  // namespace
}  // namespace slipstream::testing_cuda
