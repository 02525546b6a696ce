// Rows of the KV cache on emulated blocks: rounded as the host rounds, put where they belong, and nothing else touched.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/attention.h"
#include "kernels/base/float16.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/kv_launch.h"
#include "tests/cuda_emulation/schedule.h"

namespace slipstream {
namespace {

constexpr std::byte kFresh{0xa5};

class CudaKvTest : public testing::TestWithParam<DType> {
protected:
    static float rounded(const std::byte* at) {
        switch (GetParam()) {
            case DType::F32:
                return *reinterpret_cast<const float*>(at);
            case DType::F16:
                return to_float(*reinterpret_cast<const Half*>(at));
            default:
                return to_float(*reinterpret_cast<const BFloat16*>(at));
        }
    }
    static float round_to(float value) {
        switch (GetParam()) {
            case DType::F32:
                return value;
            case DType::F16:
                return to_float(to_half(value));
            default:
                return to_float(to_bfloat16(value));
        }
    }
    static std::size_t element() { return row_bytes(GetParam(), 1); }
};

TEST_P(CudaKvTest, WritesRoundedRowsWhereTheyBelong) {
    for (const std::int64_t cols : {2, 64, 130, 1024}) {
        const std::int64_t n = 5, n_rows = 9, stride = cols + 6;
        std::mt19937 random(static_cast<std::uint32_t>(cols));
        std::normal_distribution<float> normal;
        std::vector<float> k(static_cast<std::size_t>(n * stride)), v(static_cast<std::size_t>(n * cols));
        for (float& value : k) value = normal(random) * 100;
        for (float& value : v) value = normal(random) * 1e-6F;
        const std::vector<std::int32_t> rows{7, 0, 8, 3, 1};
        std::vector<std::byte> scratch_k(static_cast<std::size_t>(n_rows * cols) * element(), kFresh);
        std::vector<std::byte> scratch_v = scratch_k;
        cuda::launch_kv_write({.type = cuda::kv_type(GetParam()),
                               .n_tokens = static_cast<std::int32_t>(n),
                               .row_elements = static_cast<std::int32_t>(cols),
                               .k = k.data(),
                               .k_stride = stride,
                               .v = v.data(),
                               .v_stride = cols,
                               .scratch_k = scratch_k.data(),
                               .scratch_v = scratch_v.data(),
                               .scratch_rows = rows.data()},
                              nullptr);
        for (std::int64_t row = 0; row < n_rows; ++row) {
            const auto at = std::find(rows.begin(), rows.end(), row);
            for (std::int64_t i = 0; i < cols; ++i) {
                const std::size_t place = static_cast<std::size_t>(row * cols + i) * element();
                if (at == rows.end()) {
                    ASSERT_EQ(scratch_k[place], kFresh) << row;
                    ASSERT_EQ(scratch_v[place], kFresh) << row;
                    continue;
                }
                const std::int64_t t = at - rows.begin();
                ASSERT_EQ(rounded(&scratch_k[place]), round_to(k[t * stride + i]));
                ASSERT_EQ(rounded(&scratch_v[place]), round_to(v[t * cols + i]));
            }
        }
    }
}

class CudaKvSixteenBitTest : public CudaKvTest {};

TEST_P(CudaKvSixteenBitTest, RowsAreFinite) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const std::vector<float> k{kInfinity, -kInfinity, std::nanf(""), std::numeric_limits<float>::max(), -3.4e38F, 1.5F};
    const std::int32_t row = 0;
    std::vector<std::byte> scratch_k(k.size() * 4), scratch_v(k.size() * 4);
    cuda::launch_kv_write({.type = cuda::kv_type(GetParam()),
                           .n_tokens = 1,
                           .row_elements = static_cast<std::int32_t>(k.size()),
                           .k = k.data(),
                           .v = k.data(),
                           .scratch_k = scratch_k.data(),
                           .scratch_v = scratch_v.data(),
                           .scratch_rows = &row},
                          nullptr);
    for (std::size_t i = 0; i < k.size(); ++i) {
        EXPECT_TRUE(std::isfinite(rounded(&scratch_k[2 * i]))) << k[i];
        EXPECT_TRUE(std::isfinite(rounded(&scratch_v[2 * i]))) << k[i];
    }
    EXPECT_GT(rounded(&scratch_k[0]), 65000.0F);
    EXPECT_LT(rounded(&scratch_k[2]), -65000.0F);
    EXPECT_EQ(rounded(&scratch_k[10]), 1.5F);
}

TEST_P(CudaKvTest, CommitsRowsBehindOneAnotherOverChunks) {
    for (const auto& [n_heads, head_dim] : {std::pair{1, 2}, std::pair{3, 20}, std::pair{2, 64}}) {
        const KvLayout shape{n_heads, head_dim, GetParam()};
        const std::int64_t n = 270, first = 250, n_scratch = 300;
        std::vector<std::byte> scratch_k(static_cast<std::size_t>(n_scratch) * shape.scratch_row_bytes());
        std::vector<std::byte> scratch_v(scratch_k.size());
        std::mt19937 random(3);
        for (std::byte& byte : scratch_k) byte = static_cast<std::byte>(random());
        for (std::byte& byte : scratch_v) byte = static_cast<std::byte>(random());
        std::vector<std::int32_t> rows;
        for (std::int64_t i = 0; i < n; ++i) rows.push_back(static_cast<std::int32_t>((i * 7) % n_scratch));
        std::vector<std::vector<std::byte>> storage(3, std::vector<std::byte>(shape.chunk_bytes(), kFresh));
        std::vector<std::byte*> chunks;
        for (auto& chunk : storage) chunks.push_back(chunk.data());
        cuda::launch_kv_commit({.n_rows = static_cast<std::int32_t>(n),
                                .n_kv_heads = n_heads,
                                .head_words = static_cast<std::int32_t>(row_bytes(GetParam(), head_dim) / 4),
                                .scratch_k = scratch_k.data(),
                                .scratch_v = scratch_v.data(),
                                .scratch_rows = rows.data(),
                                .first_position = first,
                                .chunks = chunks.data()},
                               nullptr);
        const std::size_t row = row_bytes(GetParam(), head_dim);
        for (std::int64_t position = 0; position < 3 * kChunkTokens; ++position)
            for (std::int64_t head = 0; head < n_heads; ++head)
                for (const bool value : {false, true}) {
                    const std::byte* at = storage[position / kChunkTokens].data() +
                                          static_cast<std::size_t>(2 * head + (value ? 1 : 0)) * shape.part_bytes() +
                                          static_cast<std::size_t>(position % kChunkTokens) * row;
                    if (position < first || position >= first + n) {
                        ASSERT_TRUE(std::all_of(at, at + row, [](std::byte byte) { return byte == kFresh; }))
                            << position;
                        continue;
                    }
                    const std::byte* from =
                        (value ? scratch_v : scratch_k).data() +
                        static_cast<std::size_t>(rows[position - first]) * shape.scratch_row_bytes() +
                        static_cast<std::size_t>(head) * row;
                    ASSERT_EQ(std::memcmp(at, from, row), 0) << position << ", head " << head;
                }
    }
}

std::string name_of(const testing::TestParamInfo<DType>& type) {
    return std::string(dtype_name(type.param));
}
INSTANTIATE_TEST_SUITE_P(Types, CudaKvTest, testing::Values(DType::F32, DType::F16, DType::BF16), name_of);
INSTANTIATE_TEST_SUITE_P(Types, CudaKvSixteenBitTest, testing::Values(DType::F16, DType::BF16), name_of);

}  // namespace
}  // namespace slipstream
