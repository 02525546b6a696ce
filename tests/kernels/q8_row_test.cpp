// Rows of Q8_0 in scratch: codes and scales of each head as q8_row.h defines them, in every kernel variant, whatever
// numbers the rows hold.
#include "kernels/base/q8_row.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/attention.h"
#include "kernels/cpu_device.h"

namespace slipstream {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Q8Row {
    std::vector<std::int8_t> codes;
    std::vector<float> scales;
};

// The definition, by the library's functions.
Q8Row expected_row(std::vector<float> row) {
    Q8Row expected;
    for (float& value : row) value = std::isnan(value) ? kQ8Most : std::clamp(value, -kQ8Most, kQ8Most);
    for (std::size_t begin = 0; begin < row.size(); begin += 32) {
        const std::span block = std::span(row).subspan(begin, std::min<std::size_t>(32, row.size() - begin));
        float most = 0.0F;
        for (const float value : block) most = std::max(most, std::abs(value));
        // The smallest number of eight bits that is not below most / 127.
        float scale = 0.0F;
        if (most >= kQ8Least) {
            int exponent = 0;
            const float fraction = std::frexp(most / 127.0F, &exponent);
            scale = std::ldexp(std::ceil(std::ldexp(fraction, 8)), exponent - 8);
        }
        expected.scales.push_back(scale);
        for (const float value : block)
            expected.codes.push_back(
                static_cast<std::int8_t>(std::nearbyint(scale == 0.0F ? 0.0F : value * (1.0F / scale))));
    }
    return expected;
}

class Q8RowTest : public testing::TestWithParam<CpuForm> {
protected:
    void SetUp() override {
        if (!cpu_has_form(GetParam())) GTEST_SKIP() << "this machine has no " << cpu_form_name(GetParam());
    }

    // Writes `k` and `v`, [n_tokens, n_kv_heads * head_dim], and expects every row of scratch.
    static void expect_rows(std::int64_t n_kv_heads, std::int64_t head_dim, const std::vector<float>& k,
                            const std::vector<float>& v) {
        CpuDevice cpu({.n_threads = 2, .form = GetParam()});
        const auto stream = cpu.make_stream(StreamKind::Compute);
        const KvLayout shape{n_kv_heads, head_dim, DType::Q8_0};
        const std::int64_t cols = n_kv_heads * head_dim;
        const auto n_tokens = std::ssize(k) / cols;
        std::vector<std::int32_t> rows(static_cast<std::size_t>(n_tokens));
        std::iota(rows.rbegin(), rows.rend(), 0);
        std::vector<std::byte> scratch_k(static_cast<std::size_t>(n_tokens) * shape.scratch_row_bytes(),
                                         std::byte{0xaa});
        std::vector<std::byte> scratch_v = scratch_k;
        kv_write({cpu, *stream}, {.shape = shape,
                                  .k = matrix_view(k.data(), n_tokens, cols),
                                  .v = matrix_view(v.data(), n_tokens, cols),
                                  .scratch_k = scratch_k.data(),
                                  .scratch_v = scratch_v.data(),
                                  .scratch_rows = rows.data()});
        for (const bool values : {false, true})
            for (std::int64_t token = 0; token < n_tokens; ++token)
                for (std::int64_t head = 0; head < n_kv_heads; ++head) {
                    const auto from = (values ? v : k).begin() + token * cols + head * head_dim;
                    const Q8Row expected = expected_row({from, from + head_dim});
                    const std::byte* at = (values ? scratch_v : scratch_k).data() +
                                          static_cast<std::size_t>(rows[token]) * shape.scratch_row_bytes() +
                                          static_cast<std::size_t>(head) * shape.head_row_bytes();
                    EXPECT_EQ(std::memcmp(at, expected.codes.data(), expected.codes.size()), 0)
                        << head_dim << ", token " << token << ", head " << head;
                    ASSERT_EQ(std::ssize(expected.scales), shape.head_scales());
                    for (std::size_t block = 0; block < expected.scales.size(); ++block) {
                        BFloat16 scale;
                        std::memcpy(&scale, at + shape.head_code_bytes() + 2 * block, sizeof(scale));
                        EXPECT_EQ(to_float(scale), expected.scales[block]);
                    }
                    for (std::size_t pad = expected.codes.size(); pad < shape.head_code_bytes(); ++pad)
                        EXPECT_EQ(at[pad], std::byte{0});
                    for (std::size_t pad = shape.head_code_bytes() + 2 * expected.scales.size();
                         pad < shape.head_row_bytes(); ++pad)
                        EXPECT_EQ(at[pad], std::byte{0});
                }
    }
};

TEST_P(Q8RowTest, HasTheCodesAndTheScaleOfItsDefinition) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (const std::int64_t head_dim : {2, 8, 10, 64, 80, 128, 256}) {
        std::vector<float> k, v;
        for (std::int64_t i = 0; i < 11 * 3 * head_dim; ++i) {
            k.push_back(normal(random) * (random() % 61 == 0 ? 100.0F : 1.0F));
            v.push_back(std::ldexp(normal(random), static_cast<int>(random() % 60) - 30));
        }
        expect_rows(3, head_dim, k, v);
    }
}

TEST_P(Q8RowTest, OfNumbersAtTheEndsOfTheRangeIsFinite) {
    const std::vector<std::vector<float>> heads{
        {0.0F, -0.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F},
        {kInfinity, -kInfinity, kNan, 1.0F, -3e38F, 3e38F, 0.0F, kNan, -kNan, 1e-45F},
        {1e-45F, -1e-40F, 1e-38F, kQ8Least / 2, 0.0F, 0.0F, 0.0F, 0.0F, -kQ8Least / 2, 0.0F},
        {kQ8Least, -kQ8Least, kQ8Least / 2, 1e-38F, 0.0F, 0.0F, 0.0F, 0.0F, 1e-37F, 0.0F},
        {127.0F, 0.5F, 1.5F, 2.5F, -0.5F, -1.5F, -2.5F, 126.5F, -126.5F, 125.5F},  // ties
        {1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F, 7.0F, kQ8Most, 9.0F, kNan},           //
    };
    std::vector<float> rows;
    for (const auto& head : heads) rows.insert(rows.end(), head.begin(), head.end());
    expect_rows(2, 10, rows, rows);
    for (const auto& head : heads) {
        const Q8Row row = expected_row(head);
        EXPECT_TRUE(std::isfinite(127.0F * row.scales.front()));
        for (const std::int8_t code : row.codes) EXPECT_NE(code, -128);
    }
}

INSTANTIATE_TEST_SUITE_P(Forms, Q8RowTest, testing::ValuesIn(kCpuForms),
                         [](const auto& form) { return std::string(cpu_form_name(form.param)); });

TEST(KvTypes, AreTheFloatsAndQ8) {
    for (int i = 0; i < kDTypeCount; ++i) {
        const auto type = static_cast<DType>(i);
        EXPECT_EQ(is_kv_type(type), i <= static_cast<int>(DType::Q8_0)) << dtype_name(type);
    }
    EXPECT_EQ(kv_type_name(DType::Q8_0), "Q8");
    EXPECT_EQ(kv_type_name(DType::BF16), "BF16");
}

TEST(KvTypes, Q8RowsHaveAScaleForEachBlock) {
    const KvLayout layout{.n_kv_heads = 2, .head_dim = 64, .dtype = DType::Q8_0};
    EXPECT_EQ(layout.head_scales(), 2);
    EXPECT_EQ(layout.head_row_bytes(), 68U);
    EXPECT_EQ(layout.scratch_row_bytes(), 2 * 68U);
    EXPECT_EQ(layout.chunk_bytes(), 2 * 2 * 256 * 68U);
    EXPECT_EQ((KvLayout{1, 128, DType::Q8_0}).head_row_bytes(), 136U);
    EXPECT_EQ((KvLayout{1, 80, DType::Q8_0}).head_row_bytes(), 88U);  // three scales in two words
    const KvLayout odd{.n_kv_heads = 1, .head_dim = 10, .dtype = DType::Q8_0};
    EXPECT_EQ(odd.head_code_bytes(), 12U);
    EXPECT_EQ(odd.part_bytes(), 256 * 16U);
    const KvLayout half{.n_kv_heads = 2, .head_dim = 64, .dtype = DType::F16};
    EXPECT_EQ(half.head_row_bytes(), 128U);
    EXPECT_EQ(half.chunk_bytes(), 2 * 2 * 256 * 128U);
}

}  // namespace
}  // namespace slipstream
