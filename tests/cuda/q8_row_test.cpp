// Rows of Q8_0 on a GPU: the bytes that the CPU's scalar kernels write (q8_row.h), whatever numbers the rows hold, in
// scratch and committed.
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/attention.h"
#include "kernels/base/q8_row.h"
#include "kernels/cpu_device.h"
#include "tests/cuda/device_array.h"
#include "tests/cuda/under_test.h"

namespace slipstream::testing_cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class CudaQ8Row : public CudaOps {
protected:
    // Writes `rows`, [n_tokens, n_kv_heads * head_dim], as keys and, in reverse, as values, on both devices.
    void expect_rows_of_the_cpu(const KvLayout& shape, const std::vector<float>& rows) {
        const std::int64_t cols = shape.n_kv_heads * shape.head_dim;
        const std::int64_t n_tokens = std::ssize(rows) / cols;
        const std::vector<float> reversed(rows.rbegin(), rows.rend());
        std::vector<std::int32_t> places(static_cast<std::size_t>(n_tokens));
        std::iota(places.rbegin(), places.rend(), 1);
        const std::vector<std::byte> fresh(static_cast<std::size_t>(n_tokens + 2) * shape.scratch_row_bytes(),
                                           std::byte{0xaa});
        CpuDevice cpu({.form = CpuForm::Scalar});
        const auto cpu_stream = cpu.make_stream(StreamKind::Compute);
        std::vector<std::byte> expected_k = fresh;
        std::vector<std::byte> expected_v = fresh;
        KvWriteArgs args{.shape = shape,
                         .k = matrix_view(rows.data(), n_tokens, cols),
                         .v = matrix_view(reversed.data(), n_tokens, cols),
                         .scratch_k = expected_k.data(),
                         .scratch_v = expected_v.data(),
                         .scratch_rows = places.data()};
        kv_write({cpu, *cpu_stream}, args);
        const DeviceFloats k(exec(), n_tokens, cols, rows, 5);
        const DeviceFloats v(exec(), n_tokens, cols, reversed);
        const Buffer scratch_k = upload_bytes(exec(), fresh);
        const Buffer scratch_v = upload_bytes(exec(), fresh);
        args.k = k.view(), args.v = v.view();
        args.scratch_k = scratch_k.data(), args.scratch_v = scratch_v.data();
        kv_write(exec(), args);
        ASSERT_EQ(download_bytes(exec(), scratch_k.data(), fresh.size()), expected_k) << shape.head_dim;
        ASSERT_EQ(download_bytes(exec(), scratch_v.data(), fresh.size()), expected_v) << shape.head_dim;
    }
};

TEST_F(CudaQ8Row, HasTheBytesThatTheCpuWrites) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (const std::int64_t head_dim : {2, 8, 10, 42, 64, 80, 96, 128, 256}) {
        std::vector<float> rows;
        for (std::int64_t i = 0; i < 11 * 3 * head_dim; ++i)
            rows.push_back(std::ldexp(normal(random), static_cast<int>(random() % 60) - 30));
        expect_rows_of_the_cpu({3, head_dim, DType::Q8_0}, rows);
    }
}

TEST_F(CudaQ8Row, OfNumbersAtTheEndsOfTheRangeIsThatOfTheCpu) {
    expect_rows_of_the_cpu(
        {2, 10, DType::Q8_0},
        {
            0.0F,      -0.0F,      0.0F,         0.0F,         0.0F,   0.0F,  0.0F,  0.0F,    0.0F,          0.0F,
            kInfinity, -kInfinity, kNan,         1.0F,         -3e38F, 3e38F, 0.0F,  kNan,    -kNan,         1e-45F,
            1e-45F,    -1e-40F,    1e-38F,       kQ8Least / 2, 0.0F,   0.0F,  0.0F,  0.0F,    -kQ8Least / 2, 0.0F,
            kQ8Least,  -kQ8Least,  kQ8Least / 2, 1e-38F,       0.0F,   0.0F,  0.0F,  0.0F,    1e-37F,        0.0F,
            127.0F,    0.5F,       1.5F,         2.5F,         -0.5F,  -1.5F, -2.5F, 126.5F,  -126.5F,       125.5F,
            1.0F,      2.0F,       3.0F,         4.0F,         5.0F,   6.0F,  7.0F,  kQ8Most, 9.0F,          kNan,
        });
}

// A block of every scale that there is, at its ends: the largest number below a scale's step, and the next one.
TEST_F(CudaQ8Row, ScalesAreRoundedUpLikeTheCpus) {
    std::vector<float> rows;
    for (int exponent = -119; exponent < 127; exponent += 3)
        for (const float most : {127.0F / 128, 127.0F * 129 / 16384, 127.0F * 255 / 32768, 1.0F, 1.9F})
            for (const float next : {0.0F, 1.0F, -1.0F}) {
                const float size = std::ldexp(next == 0.0F ? most : std::nextafter(most, most + next), exponent);
                rows.push_back(-size);
                for (int i = 1; i < 32; ++i) rows.push_back(size * static_cast<float>(2 * i - 31) / 63.0F);
            }
    expect_rows_of_the_cpu({1, 32, DType::Q8_0}, rows);
}

// Committed rows: codes and scales in steps of 64, whatever rows of the step came before.
TEST_F(CudaQ8Row, IsCommittedIntoStepsOfCodesAndScales) {
    const KvLayout shape{2, 42, DType::Q8_0};
    constexpr std::int64_t kFirst = 250;
    constexpr std::int64_t kRows = 80;
    std::mt19937 random(5);
    std::vector<std::byte> scratch(kRows * shape.scratch_row_bytes());
    for (std::byte& byte : scratch) byte = static_cast<std::byte>(random());
    const Buffer k = upload_bytes(exec(), scratch);
    const std::vector<std::byte> reversed(scratch.rbegin(), scratch.rend());
    const Buffer v = upload_bytes(exec(), reversed);
    const std::vector<std::byte> fresh(shape.chunk_bytes(), std::byte{0x5a});
    const Buffer chunks[] = {upload_bytes(exec(), fresh), upload_bytes(exec(), fresh)};
    std::byte* const places[] = {chunks[0].data(), chunks[1].data()};
    std::vector<std::int32_t> rows(kRows);
    std::iota(rows.rbegin(), rows.rend(), 0);
    kv_commit(exec(), {.shape = shape,
                       .scratch_k = k.data(),
                       .scratch_v = v.data(),
                       .scratch_rows = rows.data(),
                       .n_rows = kRows,
                       .first_position = kFirst,
                       .chunks = places});
    std::vector<std::byte> expected[] = {fresh, fresh};
    for (std::int64_t i = 0; i < kRows; ++i)
        for (std::int64_t head = 0; head < shape.n_kv_heads; ++head)
            for (const bool value : {false, true}) {
                const auto slot = static_cast<std::size_t>((kFirst + i) % kChunkTokens);
                const std::byte* row = (value ? reversed : scratch).data() +
                                       static_cast<std::size_t>(rows[i]) * shape.scratch_row_bytes() +
                                       static_cast<std::size_t>(head) * shape.head_row_bytes();
                std::byte* step = expected[(kFirst + i) / kChunkTokens].data() +
                                  static_cast<std::size_t>(2 * head + (value ? 1 : 0)) * shape.part_bytes() +
                                  slot / 64 * shape.step_bytes();
                const std::size_t codes = shape.head_code_bytes();
                const std::size_t scales = shape.head_row_bytes() - codes;
                std::copy_n(row, codes, step + slot % 64 * codes);
                std::copy_n(row + codes, scales, step + 64 * codes + slot % 64 * scales);
            }
    for (std::size_t chunk = 0; chunk < 2; ++chunk)
        EXPECT_EQ(download_bytes(exec(), places[chunk], fresh.size()), expected[chunk]) << chunk;
}

}  // namespace
}  // namespace slipstream::testing_cuda
