// The ops of a mixture of experts: the choice against a reference in double, the grouped product against matmul() to
// the bit (in the scalar form, quantised weights against the plain loop), the sum in its written order.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/base/checked_math.h"
#include "kernels/cpu/matmul/code_chain.h"
#include "kernels/experts.h"
#include "kernels/workspace.h"
#include "tests/kernels/matmul_cases.h"

namespace slipstream {
namespace {

using namespace testing_matmul;  // NOLINT: the cases are this test's own

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Chosen {
    std::vector<std::int32_t> ids;
    std::vector<float> weights;
};

/// Runs choose_experts() over logits [n_tokens, n_experts].
Chosen choose(CpuForm form, int n_threads, const std::vector<float>& logits, std::int64_t n_experts,
              std::int64_t n_chosen, const ExpertWeighting& weighting, const std::vector<float>& bias = {},
              const std::vector<float>& scales = {}) {
    CpuDevice device({.n_threads = n_threads, .form = form});
    const auto stream = device.make_stream(StreamKind::Compute);
    const std::int64_t n_tokens = std::ssize(logits) / n_experts;
    Chosen chosen{std::vector<std::int32_t>(static_cast<std::size_t>(n_tokens * n_chosen), -7),
                  std::vector<float>(static_cast<std::size_t>(n_tokens * n_chosen), kNan)};
    ChooseExpertsArgs args{.logits = matrix_view(logits.data(), n_tokens, n_experts),
                           .n_chosen = n_chosen,
                           .weighting = weighting,
                           .ids = chosen.ids.data(),
                           .weights = chosen.weights.data()};
    const auto vector = [&](const std::vector<float>& of) {
        return vector_view(reinterpret_cast<const std::byte*>(of.data()), DType::F32, n_experts);
    };
    if (!bias.empty()) args.bias = vector(bias);
    if (!scales.empty()) args.scales = vector(scales);
    choose_experts({device, *stream}, args);
    return chosen;
}

/// The same in double, by sorting.
void expect_choice(const Chosen& found, const std::vector<float>& logits, std::int64_t n_experts, std::int64_t n_chosen,
                   const ExpertWeighting& weighting, const std::vector<float>& bias) {
    const auto n = static_cast<std::size_t>(n_experts);
    const auto k = static_cast<std::size_t>(n_chosen);
    for (std::size_t token = 0; token * n < logits.size(); ++token) {
        const float* row = logits.data() + token * n;
        const double largest = *std::max_element(row, row + n);
        std::vector<double> score(n);
        double all = 0.0;
        for (std::size_t i = 0; i < n; ++i) {
            score[i] = weighting.score == ExpertScore::Softmax ? std::exp(double{row[i]} - largest)
                                                               : 1.0 / (1.0 + std::exp(-double{row[i]}));
            all += score[i];
        }
        std::vector<std::int32_t> order(n);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
            const auto key = [&](std::int32_t i) {
                if (weighting.score == ExpertScore::Softmax) return double{row[i]};
                return score[i] + (bias.empty() ? 0.0 : double{bias[i]});
            };
            return key(a) > key(b);
        });
        order.resize(k);
        std::sort(order.begin(), order.end());
        double sum = 0.0;
        for (const std::int32_t id : order) sum += score[id];
        double divisor = weighting.normalized ? sum + double{weighting.sum_offset} : all;
        if (!weighting.normalized && weighting.score == ExpertScore::Sigmoid) divisor = 1.0;
        for (std::size_t j = 0; j < k; ++j) {
            ASSERT_EQ(found.ids[token * k + j], order[j]) << "token " << token;
            const double weight = score[order[j]] / divisor * double{weighting.scale};
            // A score has an error of 2 ulp from exp and 2 from a quotient, a sum of n terms n / 2 ulp.
            EXPECT_NEAR(found.weights[token * k + j], weight, (8.0 + double(n)) * 0x1p-24 * weight)
                << "token " << token;
        }
    }
}

class ChooseExperts : public testing::TestWithParam<CpuForm> {};

TEST_P(ChooseExperts, GivesTheChoiceAndWeightsOfTheReference) {
    for (const std::int64_t n_experts : {1, 5, 16, 37, 128}) {
        for (const std::int64_t n_chosen : {1, 2, 8, 128}) {
            if (n_chosen > n_experts && n_chosen != 128) continue;
            const std::int64_t k = std::min(n_chosen, n_experts);
            std::mt19937 random(kSeed);
            std::normal_distribution<float> normal(0.0F, 3.0F);
            std::vector<float> logits(static_cast<std::size_t>(13 * n_experts));
            for (float& logit : logits) logit = normal(random);
            std::vector<float> bias(static_cast<std::size_t>(n_experts));
            for (float& number : bias) number = normal(random) * 0.1F;
            for (const bool normalized : {true, false}) {
                const ExpertWeighting softmax{.normalized = normalized, .scale = 1.25F};
                const Chosen found = choose(GetParam(), 2, logits, n_experts, k, softmax);
                expect_choice(found, logits, n_experts, k, softmax, {});
                const ExpertWeighting sigmoid{
                    .score = ExpertScore::Sigmoid, .normalized = normalized, .sum_offset = 1e-20F, .scale = 2.5F};
                expect_choice(choose(GetParam(), 1, logits, n_experts, k, sigmoid, bias), logits, n_experts, k, sigmoid,
                              bias);
            }
        }
    }
}

TEST_P(ChooseExperts, TiesGoToTheLowestNumbers) {
    const std::vector<float> equal(2 * 9, 1.5F);
    for (const ExpertScore score : {ExpertScore::Softmax, ExpertScore::Sigmoid}) {
        const Chosen found = choose(GetParam(), 1, equal, 9, 4, {.score = score});
        EXPECT_EQ(found.ids, (std::vector<std::int32_t>{0, 1, 2, 3, 0, 1, 2, 3}));
        for (const float weight : found.weights) EXPECT_EQ(weight, 0.25F);
    }
    const std::vector<float> some{0.0F, 2.0F, 1.0F, 2.0F, 2.0F, 1.0F};
    EXPECT_EQ(choose(GetParam(), 1, some, 6, 2, {}).ids, (std::vector<std::int32_t>{1, 3}));
    EXPECT_EQ(choose(GetParam(), 1, some, 6, 4, {}).ids, (std::vector<std::int32_t>{1, 2, 3, 4}));
    // 0 and -0 are equal.
    EXPECT_EQ(choose(GetParam(), 1, {-0.0F, 0.0F, -0.0F}, 3, 2, {}).ids, (std::vector<std::int32_t>{0, 1}));
}

TEST_P(ChooseExperts, ScalesMultiplyTheWeightsAlone) {
    std::mt19937 random(kSeed);
    std::normal_distribution<float> normal(0.0F, 3.0F);
    std::vector<float> logits(21 * 37);
    for (float& logit : logits) logit = normal(random);
    std::vector<float> scales(37);
    for (float& scale : scales) scale = normal(random);
    for (const std::int64_t k : {1, 4, 37}) {
        const ExpertWeighting weighting{.scale = 1.25F};
        const Chosen plain = choose(GetParam(), 2, logits, 37, k, weighting);
        const Chosen found = choose(GetParam(), 2, logits, 37, k, weighting, {}, scales);
        EXPECT_EQ(found.ids, plain.ids);
        for (std::size_t i = 0; i < plain.ids.size(); ++i)
            ASSERT_EQ(found.weights[i], plain.weights[i] * scales[plain.ids[i]]);
    }
    // Equal logits: the lowest experts, each with its own scale. A token that has none keeps its mark.
    const Chosen ties = choose(GetParam(), 1, {1.0F, 1.0F, 1.0F, kNan, 0.0F, 0.0F}, 3, 2, {}, {}, {0.5F, 3.0F, 7.0F});
    EXPECT_EQ(ties.ids, (std::vector<std::int32_t>{0, 1, -1, -1}));
    EXPECT_EQ(ties.weights, (std::vector<float>{0.25F, 1.5F, 0.0F, 0.0F}));
}

TEST_P(ChooseExperts, TheBiasDecidesTheChoiceAlone) {
    const Chosen found = choose(GetParam(), 1, {0.0F, 0.0F, 0.0F}, 3, 1,
                                {.score = ExpertScore::Sigmoid, .normalized = false}, {0.0F, 0.0F, 0.5F});
    EXPECT_EQ(found.ids, (std::vector<std::int32_t>{2}));
    EXPECT_EQ(found.weights[0], 0.5F);
}

TEST_P(ChooseExperts, ATokenWithoutFiniteNumbersIsMarkedAndNoOther) {
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
        for (const std::size_t at : {5U, 9U}) {
            std::vector<float> logits(15, 0.5F);
            logits[at] = bad;
            const Chosen found = choose(GetParam(), 1, logits, 5, 2, {});
            EXPECT_EQ(found.ids, (std::vector<std::int32_t>{0, 1, -1, -1, 0, 1}));
        }
    }
    const Chosen found =
        choose(GetParam(), 1, std::vector<float>(3, 0.0F), 3, 2, {.score = ExpertScore::Sigmoid}, {0.0F, kNan, 0.0F});
    EXPECT_EQ(found.ids, (std::vector<std::int32_t>{-1, -1}));
}

TEST(ChooseExpertsForms, AgreeToTheBitAndDoNotDependOnCompany) {
    std::mt19937 random(kSeed);
    std::normal_distribution<float> normal(0.0F, 20.0F);
    std::vector<float> logits(9 * 60);
    for (float& logit : logits) logit = normal(random);
    for (const ExpertScore score : {ExpertScore::Softmax, ExpertScore::Sigmoid}) {
        const ExpertWeighting weighting{.score = score, .normalized = false};
        const Chosen first = choose(CpuForm::Scalar, 1, logits, 60, 8, weighting);
        for (const CpuForm form : forms()) {
            const Chosen found = choose(form, 2, logits, 60, 8, weighting);
            EXPECT_EQ(found.ids, first.ids);
            EXPECT_EQ(std::memcmp(found.weights.data(), first.weights.data(), first.weights.size() * sizeof(float)), 0);
            const std::vector<float> last(logits.end() - 60, logits.end());
            const Chosen alone = choose(form, 1, last, 60, 8, weighting);
            EXPECT_TRUE(std::equal(alone.ids.begin(), alone.ids.end(), first.ids.end() - 8));
            EXPECT_EQ(std::memcmp(alone.weights.data(), &first.weights[64], 8 * sizeof(float)), 0);
        }
    }
}

/// The matrices of experts and the rows of each, multiplied as a group and one by one.
void expect_group(CpuForm form, int n_threads, DType type, std::int64_t m, std::int64_t k,
                  const std::vector<std::int64_t>& rows) {
    SCOPED_TRACE(fmt::format("{} {} [{}, {}], {} threads", cpu_form_name(form), dtype_name(type), m, k, n_threads));
    const auto n_experts = static_cast<std::int64_t>(rows.size());
    const Weights weights = random_weights(type, n_experts * m, k);
    CpuDevice device({.n_threads = n_threads, .form = form});
    const auto stream = device.make_stream(StreamKind::Compute);
    const std::size_t bytes = round_up<std::size_t>(packed_bytes(type, m, k), 64);
    const Buffer packs = device.allocate(static_cast<std::size_t>(n_experts) * bytes, MemoryTag::Weights, "experts");
    const std::int64_t n = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    GuardedMatrix x(n, k);
    x.randomise(kSeed);
    GuardedMatrix together(n, 2 * m, 3);
    GuardedMatrix alone(n, m);
    std::vector<MatmulArgs> products;
    std::int64_t first = 0;
    for (std::int64_t expert = 0; expert < n_experts; first += rows[expert++]) {
        const TensorView packed = packed_view(packs.data() + static_cast<std::size_t>(expert) * bytes, type, m, k);
        pack_weights({device, *stream}, {.weights = weights.view().slice_rows(expert * m, m), .packed = packed});
        const std::int64_t count = rows[expert];
        if (count == 0) continue;
        const TensorView own = x.view().slice_rows(first, count);
        const MatmulArgs one{.weights = packed, .x = own, .y = alone.view().slice_rows(first, count)};
        // The scalar form's matmul() adds in double.
        if (form == CpuForm::Scalar && is_quantized(type)) {
            cpu::matmul_code_chain({device, *stream}, one);
        } else {
            matmul({device, *stream}, one);
        }
        // Two products with the same x: both halves of the columns of y.
        for (const std::int64_t column : {std::int64_t{0}, m}) {
            TensorView y = together.view().slice_rows(first, count);
            y.data += column * static_cast<std::int64_t>(sizeof(float));
            y.shape[1] = m;
            products.push_back({.weights = packed, .x = own, .y = y});
        }
    }
    grouped_matmul({device, *stream}, products);
    for (std::int64_t row = 0; row < n; ++row)
        for (std::int64_t i = 0; i < 2 * m; ++i)
            ASSERT_EQ(std::bit_cast<std::uint32_t>(together.at(row, i)),
                      std::bit_cast<std::uint32_t>(alone.at(row, i % m)))
                << "row " << row << ", output " << i;
    together.expect_guards_intact();
}

class GroupedMatmul : public testing::TestWithParam<FormAndType> {};

TEST_P(GroupedMatmul, GivesTheBitsOfSingleProducts) {
    const auto [form, type] = GetParam();
    const std::int64_t k = is_quantized(type) ? 512 : 77;
    for (const int n_threads : {1, 2}) {
        expect_group(form, n_threads, type, 33, k, {1});
        expect_group(form, n_threads, type, 16, k, {1, 1, 1, 1, 1, 1, 1, 1});
        expect_group(form, n_threads, type, 47, k, {3, 0, 17, 1, 0, 8, 2});
    }
}

// All rows are of one expert; more products than are computed together; more rows than are laid out together.
TEST(GroupedMatmulShapes, GiveTheBitsOfSingleProducts) {
    for (const CpuForm form : forms()) {
        for (const DType type : {DType::F32, DType::BF16, DType::Q4_0}) {
            expect_group(form, 2, type, 19, 64, {0, 0, 70, 0});
            expect_group(form, 2, type, 16, 32, std::vector<std::int64_t>(150, 1));
            if (form == CpuForm::Scalar) continue;
            expect_group(form, 2, type, 16, 32, {kGroupedRows + 9, 5, kGroupedRows - 1, 2});
        }
        // Widths of published experts that are no multiple of 256.
        expect_group(form, 1, DType::Q5_0, 32, 1408, {1, 4});
        expect_group(form, 1, DType::MXFP4, 32, 2880, {2, 1});
    }
}

TEST(GroupedMatmulWorkspace, StaysWithinWhatIsReserved) {
    for (const CpuForm form : vector_forms()) {
        CpuDevice device({.n_threads = 2, .form = form});
        const auto stream = device.make_stream(StreamKind::Compute);
        reserve_workspace(device, {.n_tokens = kGroupedRows, .max_cols = 64});
        constexpr std::int64_t kExperts = 70;
        const Weights weights = random_weights(DType::F32, kExperts * 16, 64);
        GuardedMatrix x(kExperts * 9, 64);
        x.randomise(kSeed);
        GuardedMatrix y(kExperts * 9, 16);
        const Buffer packs =
            device.allocate(packed_bytes(DType::F32, kExperts * 16, 64), MemoryTag::Weights, "experts");
        const std::size_t before = device.budget().used_bytes();
        std::vector<MatmulArgs> products;
        const TensorView packed = packed_view(packs.data(), DType::F32, kExperts * 16, 64);
        pack_weights({device, *stream}, {.weights = weights.view(), .packed = packed});
        for (std::int64_t i = 0; i < kExperts; ++i)
            products.push_back({.weights = packed.slice_rows(16 * i, 16),
                                .x = x.view().slice_rows(9 * i, 9),
                                .y = y.view().slice_rows(9 * i, 9)});
        grouped_matmul({device, *stream}, products);
        EXPECT_EQ(device.budget().used_bytes(), before);
    }
}

TEST(CombineExperts, AddsRowsInTheWrittenOrder) {
    for (const CpuForm form : forms()) {
        for (const std::int64_t d : {1, 17, 256, 801}) {
            CpuDevice device({.n_threads = 2, .form = form});
            const auto stream = device.make_stream(StreamKind::Compute);
            // Token 3 has no row; token 1 has rows of three experts, in two waves.
            const std::vector<std::int32_t> tokens{0, 1, 1, 2, 1, 4};
            const std::vector<float> weights{0.3F, 0.7F, 0.1F, 1.0F, 0.25F, -0.5F};
            GuardedMatrix rows(std::ssize(tokens), d, 2);
            rows.randomise(kSeed);
            GuardedMatrix sums(5, d, 1);  // NaN at first
            for (const auto& [begin, end] : {std::pair<std::size_t, std::size_t>{0, 4}, {4, 6}})
                combine_experts({device, *stream},
                                {.rows = rows.view().slice_rows(static_cast<std::int64_t>(begin),
                                                                static_cast<std::int64_t>(end - begin)),
                                 .tokens = tokens.data() + begin,
                                 .weights = weights.data() + begin,
                                 .sums = sums.view(),
                                 .from_zero = begin == 0});
            for (std::int64_t i = 0; i < d; ++i) {
                std::vector<float> expected(5, 0.0F);
                for (std::size_t row = 0; row < tokens.size(); ++row) {
                    float& sum = expected[tokens[row]];
                    sum = std::fma(weights[row], rows.at(static_cast<std::int64_t>(row), i), sum);
                }
                for (std::int64_t token = 0; token < 5; ++token)
                    ASSERT_EQ(std::bit_cast<std::uint32_t>(sums.at(token, i)),
                              std::bit_cast<std::uint32_t>(expected[token]))
                        << "token " << token << ", column " << i;
            }
            sums.expect_guards_intact();
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Forms, ChooseExperts, testing::ValuesIn(forms()),
                         [](const auto& param) { return std::string(cpu_form_name(param.param)); });
INSTANTIATE_TEST_SUITE_P(FormsAndTypes, GroupedMatmul,
                         testing::Combine(testing::ValuesIn(forms()), testing::ValuesIn(kAllTypes)), case_name);

}  // namespace
}  // namespace slipstream
