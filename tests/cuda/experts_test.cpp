// The ops of a mixture of experts on a CUDA device: the choice is that of a CPU, a grouped product has the bits of
// matmul(), the sum those of its written order.
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "kernels/base/checked_math.h"
#include "kernels/cpu_device.h"
#include "kernels/cuda/host/staging.h"
#include "kernels/elementwise.h"
#include "kernels/experts.h"
#include "kernels/move_rows.h"
#include "kernels/workspace.h"
#include "tests/cuda/matmul_on_device.h"

namespace slipstream::testing_cuda {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Chosen {
    std::vector<std::int32_t> ids;
    std::vector<float> weights;
};

class CudaExperts : public CudaMatmul {
protected:
    void TearDown() override {
        memory_.clear();
        CudaMatmul::TearDown();
    }
    Chosen choose_on(ExecRef where, const ConstTensorView& logits, const ConstTensorView& bias, std::int64_t n_chosen,
                     const ExpertWeighting& weighting, const ConstTensorView& scales = {}) {
        const auto n = static_cast<std::size_t>(logits.rows() * n_chosen);
        Chosen chosen{std::vector<std::int32_t>(n, -7), std::vector<float>(n, kNan)};
        choose_experts(where, {.logits = logits,
                               .bias = bias,
                               .scales = scales,
                               .n_chosen = n_chosen,
                               .weighting = weighting,
                               .ids = chosen.ids.data(),
                               .weights = chosen.weights.data()});
        return chosen;
    }
    /// Checks that the device chooses as a CPU does, to the bit, and returns its choice.
    Chosen expect_choice(const std::vector<float>& logits, std::int64_t n_experts, std::int64_t n_chosen,
                         const ExpertWeighting& weighting, const std::vector<float>& bias = {},
                         const std::vector<float>& scales = {}) {
        const std::int64_t n_tokens = std::ssize(logits) / n_experts;
        const DeviceFloats logits_here(exec(), n_tokens, n_experts, logits);
        const auto upload = [&](const std::vector<float>& vector) {
            return std::make_unique<DeviceFloats>(exec(), 1, std::max<std::int64_t>(std::ssize(vector), 1),
                                                  vector.empty() ? std::vector<float>{0.0F} : vector);
        };
        const auto bias_here = upload(bias);
        const auto scales_here = upload(scales);
        const auto view = [&](const std::vector<float>& vector, const std::byte* data) {
            return vector.empty() ? ConstTensorView{} : vector_view(data, DType::F32, n_experts);
        };
        const Chosen found = choose_on(exec(), logits_here.view(), view(bias, bias_here->view().data), n_chosen,
                                       weighting, view(scales, scales_here->view().data));
        CpuDevice cpu({.n_threads = 1});
        const auto stream = cpu.make_stream(StreamKind::Compute);
        const Chosen expected = choose_on({cpu, *stream}, matrix_view(logits.data(), n_tokens, n_experts),
                                          view(bias, reinterpret_cast<const std::byte*>(bias.data())), n_chosen,
                                          weighting, view(scales, reinterpret_cast<const std::byte*>(scales.data())));
        EXPECT_EQ(found.ids, expected.ids);
        EXPECT_TRUE(same_bits(found.weights, expected.weights));
        return found;
    }
    /// Rows [first, first + m) of `made`, packed on the device.
    ConstTensorView packed(const testing_matmul::Weights& made, std::int64_t first, std::int64_t m) {
        const std::size_t size = packed_bytes(made.type, m, made.k);
        std::vector<std::byte> bytes(size + 64);
        auto* host = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(bytes.data()) + 63) / 64 * 64);
        TensorView view = packed_view(host, made.type, m, made.k, packed_layout(device().kind()));
        pack_weights(exec(), {.weights = made.view().slice_rows(first, m), .packed = view});
        memory_.push_back(upload_bytes(exec(), {host, size}));
        view.data = memory_.back().data();
        return view;
    }
    ConstTensorView packed(const testing_matmul::Weights& made) { return packed(made, 0, made.m); }
    /// Multiplies the rows of each expert by two matrices and a bias, as a group and by matmul() one by one.
    void expect_group(DType type, DType second, std::int64_t m, std::int64_t k, const std::vector<std::int64_t>& rows) {
        SCOPED_TRACE(testing::Message() << dtype_name(type) << " and " << dtype_name(second) << " [" << m << ", " << k
                                        << "], rows " << testing::PrintToString(rows));
        const std::int64_t n = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
        const DeviceFloats x(exec(), n, k, random_floats(n * k, 3));
        const DeviceFloats y(exec(), n, 2 * m, 3);
        const auto n_experts = std::ssize(rows);
        const DeviceFloats bias(exec(), n_experts, m, random_floats(n_experts * m, 4));
        const testing_matmul::Weights all[] = {testing_matmul::random_weights(type, n_experts * m, k),
                                               testing_matmul::random_weights(second, n_experts * m, k, 1)};
        std::vector<MatmulArgs> products;
        std::vector<float> expected;
        std::int64_t first = 0;
        for (std::int64_t expert = 0; expert < n_experts; first += rows[expert++]) {
            const std::int64_t count = rows[expert];
            if (count == 0) continue;
            const ConstTensorView matrices[] = {packed(all[0], expert * m, m), packed(all[1], expert * m, m)};
            const ConstTensorView own_bias = vector_view<const std::byte>(bias.view().row(expert), DType::F32, m);
            const DeviceFloats alone(exec(), count, 2 * m);
            for (const int i : {0, 1}) {
                const auto columns = [&](TensorView view) {
                    view.data += static_cast<std::size_t>(i * m) * sizeof(float);
                    view.shape[1] = m;
                    return view;
                };
                const MatmulArgs product{.weights = matrices[i],
                                         .x = x.view().slice_rows(first, count),
                                         .y = columns(y.view().slice_rows(first, count)),
                                         .bias = i == 0 ? own_bias : ConstTensorView{}};
                products.push_back(product);
                MatmulArgs same = product;
                same.y = columns(alone.view());
                matmul(exec(), same);
            }
            const std::vector<float> values = alone.read();
            expected.insert(expected.end(), values.begin(), values.end());
        }
        grouped_matmul(exec(), products);
        ASSERT_TRUE(same_bits(y.read(), expected));
    }

private:
    std::vector<Buffer> memory_;
};

TEST_F(CudaExperts, ChooseAsACpuDoes) {
    for (const std::int64_t n_experts : {1, 5, 37, 128}) {
        for (const std::int64_t n_chosen : {std::int64_t{1}, std::int64_t{4}, n_experts}) {
            if (n_chosen > n_experts) continue;
            for (const std::int64_t n_tokens : {1, 70}) {
                const std::vector<float> logits = random_floats(n_tokens * n_experts, 1);
                const std::vector<float> bias = random_floats(n_experts, 2);
                for (const bool normalized : {true, false}) {
                    expect_choice(logits, n_experts, n_chosen, {.normalized = normalized, .scale = 1.25F});
                    const ExpertWeighting sigmoid{
                        .score = ExpertScore::Sigmoid, .normalized = normalized, .sum_offset = 1e-20F, .scale = 2.5F};
                    expect_choice(logits, n_experts, n_chosen, sigmoid, bias);
                    expect_choice(logits, n_experts, n_chosen, sigmoid);
                    const std::vector<float> scales = random_floats(n_experts, 6);
                    expect_choice(logits, n_experts, n_chosen, {.normalized = normalized}, {}, scales);
                    expect_choice(logits, n_experts, n_chosen, sigmoid, bias, scales);
                }
            }
        }
    }
}

TEST_F(CudaExperts, TiesGoToTheLowestNumbers) {
    const Chosen found = expect_choice(std::vector<float>(2 * 9, 1.5F), 9, 4, {});
    EXPECT_EQ(found.ids, (std::vector<std::int32_t>{0, 1, 2, 3, 0, 1, 2, 3}));
    EXPECT_EQ(found.weights, std::vector<float>(8, 0.25F));
    EXPECT_EQ(expect_choice({0.0F, 2.0F, 1.0F, 2.0F, 2.0F, 1.0F}, 6, 2, {}).ids, (std::vector<std::int32_t>{1, 3}));
}

TEST_F(CudaExperts, ATokenWithoutFiniteNumbersIsMarked) {
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
        std::vector<float> logits(15, 0.5F);
        logits[9] = bad;
        EXPECT_EQ(expect_choice(logits, 5, 2, {}).ids, (std::vector<std::int32_t>{0, 1, -1, -1, 0, 1}));
    }
}

// The host reads logits that the work before has yet to write, and the memory for them is not allocated by the call.
TEST_F(CudaExperts, TheChoiceFollowsTheWorkBefore) {
    constexpr std::int64_t kTokens = 9;
    constexpr std::int64_t kModel = 64;
    constexpr std::int64_t kExpertCount = 21;
    reserve_workspace(device(), {.n_tokens = kTokens, .max_cols = kModel, .n_experts = kExpertCount});
    const ConstTensorView router = packed(testing_matmul::random_weights(DType::F32, kExpertCount, kModel));
    const DeviceFloats x(exec(), kTokens, kModel, random_floats(kTokens * kModel, 5));
    const DeviceFloats logits(exec(), kTokens, kExpertCount);
    const std::byte* const inbox = device().staging().inbox(1);
    matmul(exec(), {.weights = router, .x = x.view(), .y = logits.view()});
    const Chosen found = choose_on(exec(), logits.view(), {}, 3, {});
    EXPECT_EQ(device().staging().inbox(1), inbox);
    const Chosen expected = expect_choice(logits.read(), kExpertCount, 3, {});
    EXPECT_EQ(found.ids, expected.ids);
    EXPECT_TRUE(same_bits(found.weights, expected.weights));
}

TEST_F(CudaExperts, GroupedProductsHaveTheBitsOfMatmul) {
    using enum DType;
    for (const DType type : {F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, MXFP4}) {
        const std::int64_t k = is_quantized(type) ? 512 : 128;
        expect_group(type, type, 40, k, {1, 0, 3, 1, 40, 0, 70, 9, 1});
        expect_group(type, type, 16, k, {0, 0, 1, 0});
    }
    // Types that one launch mixes, and types that it does not.
    expect_group(Q4_K, Q6_K, 40, 512, {1, 3, 9});
    expect_group(BF16, Q8_0, 40, 512, {1, 3, 9});
    // Widths of published experts that are no multiple of 256.
    for (const DType type : {BF16, Q5_0, Q8_0, MXFP4}) {
        expect_group(type, type, 24, 1408, {1, 3});
        expect_group(type, type, 24, 2880, {1, 3});
    }
    expect_group(BF16, BF16, 17, 40, {2, 1});
    if (is_card()) {
        expect_group(Q4_K, Q4_K, 768, 2048, {1, 1, 2, 300, 1, 1, 5, 1, 64, 65});
        expect_group(MXFP4, MXFP4, 2880, 2880, {1, 1, 1, 1});
    }
}

// One weight for a token in all products: the rows of the experts are the tokens of one call.
TEST_F(CudaExperts, ARowHasItsBitsAmongAnyOthers) {
    const testing_matmul::Weights made = testing_matmul::random_weights(DType::Q4_K, 32, 512);
    const ConstTensorView matrix = packed(made);
    const DeviceFloats x(exec(), 12, 512, random_floats(12 * 512, 3));
    const DeviceFloats all(exec(), 12, 32);
    matmul(exec(), {.weights = matrix, .x = x.view(), .y = all.view()});
    const DeviceFloats apart(exec(), 12, 32);
    std::vector<MatmulArgs> products;
    for (const auto& [first, n] : {std::pair<std::int64_t, std::int64_t>{0, 1}, {1, 3}, {4, 1}, {5, 7}})
        products.push_back(
            {.weights = matrix, .x = x.view().slice_rows(first, n), .y = apart.view().slice_rows(first, n)});
    grouped_matmul(exec(), products);
    EXPECT_TRUE(same_bits(apart.read(), all.read()));
}

TEST_F(CudaExperts, CombineAddsRowsInTheWrittenOrder) {
    for (const std::int64_t d : {1, 17, 256, 801}) {
        for (const std::int64_t n_rows : {0, 6, 200}) {
            constexpr std::int64_t kTokens = 5;
            // Token 3 has no row; the others have rows of several experts, in two waves.
            std::vector<std::int32_t> tokens;
            for (std::int64_t row = 0; row < n_rows; ++row) {
                const auto token = static_cast<std::int32_t>(row * 7 % kTokens);
                tokens.push_back(token == 3 ? 1 : token);
            }
            const std::vector<float> weights = random_floats(n_rows, 1);
            const std::vector<float> values = random_floats(n_rows * d, 2);
            const DeviceFloats rows(exec(), n_rows, d, values, 2);
            const DeviceFloats sums(exec(), kTokens, d, 1);  // NaN at first
            std::vector<float> expected(static_cast<std::size_t>(kTokens * d), 0.0F);
            const std::int64_t middle = n_rows / 2;
            for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, middle}, {middle, n_rows}}) {
                std::vector<std::int32_t> of_tokens(tokens.begin() + begin, tokens.begin() + end);
                std::vector<float> of_weights(weights.begin() + begin, weights.begin() + end);
                combine_experts(exec(), {.rows = rows.view().slice_rows(begin, end - begin),
                                         .tokens = of_tokens.data(),
                                         .weights = of_weights.data(),
                                         .sums = sums.view(),
                                         .from_zero = begin == 0 && (end > 0 || n_rows == 0)});
                // The op has its own copy of both.
                std::fill(of_tokens.begin(), of_tokens.end(), -1);
                std::fill(of_weights.begin(), of_weights.end(), kNan);
                for (std::int64_t row = begin; row < end; ++row)
                    for (std::int64_t i = 0; i < d; ++i) {
                        float& sum = expected[tokens[row] * d + i];
                        sum = std::fma(weights[row], values[row * d + i], sum);
                    }
            }
            ASSERT_TRUE(same_bits(sums.read(), expected)) << n_rows << " rows of " << d;
        }
    }
}

// A layer of experts as a pass enqueues it, with host arrays that change as soon as an op was called: rows, products,
// activation, products, sum. Rows of the next wave take the memory of those before, also their prepared activations.
TEST_F(CudaExperts, WavesInTheSameMemoryDoNotMix) {
    constexpr std::int64_t kTokens = 6;
    constexpr std::int64_t kModel = 256;
    constexpr std::int64_t kWidth = 128;
    constexpr std::int64_t kExpertCount = 4;
    constexpr std::int64_t kWaveRows = 4;
    const DeviceFloats normed(exec(), kTokens, kModel, random_floats(kTokens * kModel, 1));
    const testing_matmul::Weights all_up = testing_matmul::random_weights(DType::BF16, kExpertCount * kWidth, kModel);
    const testing_matmul::Weights all_down = testing_matmul::random_weights(DType::BF16, kExpertCount * kModel, kWidth);
    std::vector<ConstTensorView> up;
    std::vector<ConstTensorView> down;
    for (std::int64_t expert = 0; expert < kExpertCount; ++expert) {
        up.push_back(packed(all_up, expert * kWidth, kWidth));
        down.push_back(packed(all_down, expert * kModel, kModel));
    }
    const auto computed = [&](bool waits) {
        const DeviceFloats inputs(exec(), kWaveRows, kModel);
        const DeviceFloats middle(exec(), kWaveRows, kWidth);
        const DeviceFloats sums(exec(), kTokens, kModel);
        std::vector<std::int32_t> tokens;
        std::vector<std::int32_t> places;
        std::vector<float> weights;
        for (std::int32_t wave = 0; wave < 4; ++wave) {
            tokens.assign({wave, (wave + 1) % 6, (wave + 2) % 6, wave + 2});
            if (tokens[2] == tokens[3]) tokens[3] = 0;
            places.assign({0, 1, 2, 3});
            weights.assign({0.5F, 0.25F + static_cast<float>(wave), -1.0F, 2.0F});
            move_rows(exec(), {.src = normed.view().data,
                               .dst = inputs.view().data,
                               .n_planes = 1,
                               .row_bytes = normed.view().row_stride_bytes,
                               .src_rows = tokens.data(),
                               .dst_rows = places.data(),
                               .n_rows = kWaveRows});
            const auto multiply = [&](const std::vector<ConstTensorView>& matrices, const TensorView& x,
                                      const TensorView& y) {
                const auto expert = static_cast<std::size_t>(wave);
                const MatmulArgs products[] = {
                    {.weights = matrices[expert], .x = x.slice_rows(0, 3), .y = y.slice_rows(0, 3)},
                    {.weights = matrices[(expert + 1) % 4], .x = x.slice_rows(3, 1), .y = y.slice_rows(3, 1)}};
                grouped_matmul(exec(), products);
            };
            multiply(up, inputs.view(), middle.view());
            gated_activation(exec(), {.gate = middle.view(), .up = middle.view(), .y = middle.view()});
            multiply(down, middle.view(), inputs.view());
            combine_experts(exec(), {.rows = inputs.view(),
                                     .tokens = tokens.data(),
                                     .weights = weights.data(),
                                     .sums = sums.view(),
                                     .from_zero = wave == 0});
            if (waits) exec().stream.synchronize();
            std::fill(tokens.begin(), tokens.end(), 0);
            std::fill(places.begin(), places.end(), 0);
            std::fill(weights.begin(), weights.end(), kNan);
        }
        return sums.read();
    };
    const std::vector<float> found = computed(false);
    EXPECT_TRUE(same_bits(found, computed(true)));
    for (const float value : found) ASSERT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace slipstream::testing_cuda
