// Only on a card: the sizes at which 32-bit indices, waves and grids would show, bit for bit. 128K positions, read by
// one token (chunks side by side, several waves) and by the same among 512 (folded); an LM head of 128,256 rows, whole
// and cut into items, one token and the same among 512.
#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/float16.h"
#include "tests/cuda/matmul_on_device.h"

namespace slipstream::testing_cuda {
namespace {

using testing_matmul::random_weights;
using testing_matmul::Weights;

class CudaLongContext : public CudaMatmul {};

// Chunks of 16 different contents stand in for 512: what matters is where they are read from, and in which order.
TEST_F(CudaLongContext, OneTokenBehind128KIsItselfAmong512) {
    constexpr std::int64_t kCommitted = 131072 - 512;
    constexpr std::int64_t kTokens = 512;
    const KvLayout shape{.n_kv_heads = 8, .head_dim = 128, .dtype = DType::BF16};
    constexpr std::int64_t kQueryHeads = 32;
    std::vector<Buffer> contents;
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    const auto bf16_bytes = [&](std::size_t bytes) {
        std::vector<std::byte> out(bytes);
        for (std::size_t i = 0; i < bytes; i += 2) {
            const BFloat16 value = to_bfloat16(normal(random) * (random() % 61 == 0 ? 8.0F : 1.0F));
            std::memcpy(out.data() + i, &value, 2);
        }
        return out;
    };
    for (int i = 0; i < 16; ++i) contents.push_back(upload_bytes(exec(), bf16_bytes(shape.chunk_bytes())));
    std::vector<const std::byte*> chunks;
    for (std::int64_t chunk = 0; chunk < ceil_div(kCommitted, kChunkTokens); ++chunk)
        chunks.push_back(contents[chunk * 7 % 16].data());
    const Buffer scratch_k = upload_bytes(exec(), bf16_bytes(kTokens * shape.scratch_row_bytes()));
    const Buffer scratch_v = upload_bytes(exec(), bf16_bytes(kTokens * shape.scratch_row_bytes()));
    const std::vector<float> q = random_floats(kTokens * kQueryHeads * shape.head_dim, 12);

    // Tokens [begin, end) of a chain.
    const auto attend = [&](std::int64_t begin, std::int64_t end) {
        std::vector<std::int32_t> positions;
        std::vector<std::int32_t> path_begin;
        std::vector<std::int32_t> path_rows;
        for (std::int64_t token = begin; token < end; ++token) {
            positions.push_back(static_cast<std::int32_t>(kCommitted + token));
            path_begin.push_back(static_cast<std::int32_t>(path_rows.size()));
            for (std::int64_t row = 0; row <= token; ++row) path_rows.push_back(static_cast<std::int32_t>(row));
        }
        const std::int64_t cols = kQueryHeads * shape.head_dim;
        const DeviceFloats q_device(exec(), end - begin, cols,
                                    std::vector<float>(q.begin() + begin * cols, q.begin() + end * cols));
        const DeviceFloats out(exec(), end - begin, cols, 3);
        attention(exec(), {.shape = shape,
                           .q = q_device.view(),
                           .out = out.view(),
                           .n_q_heads = kQueryHeads,
                           .positions = positions.data(),
                           .chunks = chunks.data(),
                           .n_committed = kCommitted,
                           .scratch_k = scratch_k.data(),
                           .scratch_v = scratch_v.data(),
                           .path_begin = path_begin.data(),
                           .path_rows = path_rows.data(),
                           .scale = 0.0883883476F});
        return out.read();
    };
    const std::vector<float> all = attend(0, kTokens);
    for (const std::int64_t n : {1, 3, 16, 64})
        for (const std::int64_t last : {std::int64_t{63}, std::int64_t{200}, kTokens - 1}) {
            const std::int64_t begin = std::max<std::int64_t>(0, last + 1 - n);
            const std::vector<float> few = attend(begin, last + 1);
            const std::size_t cols = static_cast<std::size_t>(kQueryHeads * shape.head_dim);
            ASSERT_TRUE(same_bits(few, std::span(all).subspan(static_cast<std::size_t>(begin) * cols, few.size())))
                << n << " tokens up to " << last;
        }
}

TEST_F(CudaLongContext, AHeadOf128256RowsIsItsItems) {
    constexpr std::int64_t kRows = 128256;
    constexpr std::int64_t kItem = 8192;  // 64 MiB
    // 1002 different rows, again and again: making random numbers takes the host longer than all the rest.
    Weights weights = random_weights(DType::BF16, kRows / 128, 4096);
    const std::vector<std::byte> rows = weights.bytes;
    while (weights.m < kRows) {
        weights.bytes.insert(weights.bytes.end(), rows.begin(), rows.end());
        weights.m += kRows / 128;
    }
    const ConstTensorView packed = on_device(weights);
    const std::vector<float> x = random_floats(512 * weights.k, 13);
    const std::vector<float> all = multiply(packed, x, 512);
    for (const std::int64_t token : {0, 300, 511}) {
        const std::vector<float> own(x.begin() + token * weights.k, x.begin() + (token + 1) * weights.k);
        const std::vector<float> one = multiply(packed, own, 1);
        ASSERT_TRUE(same_bits(one, std::span(all).subspan(static_cast<std::size_t>(token * kRows), kRows))) << token;
        for (const std::int64_t begin : {std::int64_t{0}, 9 * kItem, kRows / kItem * kItem}) {
            ConstTensorView item = packed;
            item.shape[0] = std::min(kItem, kRows - begin);
            item.data = packed.data + static_cast<std::size_t>(begin) * row_bytes(DType::BF16, weights.k);
            const std::vector<float> part = multiply(item, own, 1);
            ASSERT_TRUE(same_bits(part, std::span(one).subspan(static_cast<std::size_t>(begin), part.size())))
                << token << ", rows from " << begin;
        }
    }
}

}  // namespace
}  // namespace slipstream::testing_cuda
