// Attention and KV rows of the CUDA backend through the ops: near softmax in double, and E1 bit for bit.
#include <cmath>
#include <vector>

#include "kernels/workspace.h"
#include "tests/cuda/device_cache.h"
#include "tests/cuda/under_test.h"

namespace slipstream::testing_cuda {
namespace {

struct Case {
    DType dtype;
    std::int64_t n_q_heads, n_kv_heads, head_dim;
    float softcap = 0.0F;
    bool sinks = false;
};

std::vector<Case> cases() {
    return {{DType::F16, 4, 1, 64},
            {DType::BF16, 4, 4, 64},
            {DType::F16, 8, 1, 128},
            {DType::BF16, 3, 1, 96},
            {DType::BF16, 2, 2, 256},
            {DType::F32, 4, 2, 64},
            {DType::F16, 4, 1, 256},
            // With a softcap: on tensor cores, and heads that only the plain kernel has.
            {DType::F16, 2, 1, 128, 5.0F},
            {DType::BF16, 4, 1, 256, 5.0F},
            {DType::F16, 2, 1, 64, 5.0F},
            {DType::Q8_0, 4, 2, 64},
            {DType::Q8_0, 3, 1, 96},  // an odd number of scales
            {DType::Q8_0, 8, 1, 128},
            {DType::Q8_0, 2, 1, 256},
            {DType::Q8_0, 2, 2, 42},  // the plain kernel, rows with padding
            {DType::Q8_0, 2, 1, 128, 5.0F},
            {DType::F16, 8, 1, 64, 0.0F, true},
            {DType::BF16, 6, 2, 128, 0.0F, true},
            {DType::F16, 4, 1, 256, 5.0F, true},
            {DType::Q8_0, 8, 1, 64, 0.0F, true},
            {DType::F32, 6, 2, 64, 0.0F, true},
            {DType::BF16, 5, 1, 42, 0.0F, true}};
}

class CudaAttention : public CudaOps {
protected:
    [[nodiscard]] DeviceCache cache_of(const Case& shape, std::uint32_t seed) {
        DeviceCache cache(exec(), {shape.n_kv_heads, shape.head_dim, shape.dtype}, shape.n_q_heads, seed,
                          shape.softcap);
        if (shape.sinks) cache.with_sinks();
        return cache;
    }
};

// Queries and weights are rounded to the KV type: a score is off by the rounding times sum |q k| scale, a weight by
// that much relative to itself, and by its own rounding. With Q8 they are rounded to F16, and keys and values are too.
void expect_near(const DeviceCache& cache, const Case& shape, int token, std::span<const float> found,
                 std::int64_t window) {
    const double rounding = shape.dtype == DType::F32    ? std::ldexp(1.0, -22)
                            : shape.dtype == DType::F16  ? std::ldexp(1.0, -11)
                            : shape.dtype == DType::Q8_0 ? std::ldexp(1.0, -10)
                                                         : std::ldexp(1.0, -8);
    const DeviceCache::Exact exact = cache.exact(token, window);
    // |q| |k| scale stays below 8 sqrt(d) in these cases; roundings of different sign make up for most of it.
    const double factor = 2.0 + 8.0 * std::sqrt(static_cast<double>(shape.head_dim)) / 4.0;
    for (std::size_t i = 0; i < exact.out.size(); ++i)
        ASSERT_LE(std::fabs(found[i] - exact.out[i]), factor * rounding * exact.magnitude[i] + 1e-6)
            << dtype_name(shape.dtype) << " token " << token << " element " << i;
}

TEST_F(CudaAttention, IsNearSoftmaxInDouble) {
    for (const Case& shape : cases())
        for (const std::int64_t depth : {1, 63, 64, 257, 600})
            for (const std::int64_t window : {0, 100}) {
                DeviceCache cache = cache_of(shape, 3);
                const int tip = cache.add_chain(-1, depth);
                const std::vector<float> found = cache.run({tip}, depth - 1, window);
                expect_near(cache, shape, tip, found, window);
                if (testing::Test::HasFatalFailure()) return;
            }
}

TEST_F(CudaAttention, AQueryTakesNothingFromTheRestOfItsPass) {
    for (const Case& shape : cases()) {
        DeviceCache cache = cache_of(shape, 4);
        const int trunk = cache.add_chain(-1, 530);
        std::vector<int> tree;
        // Two branches that cross a step's border and a chunk's, with leaves along them.
        int left = trunk;
        int right = trunk;
        for (int i = 0; i < 20; ++i) {
            tree.push_back(left = cache.add_token(left));
            if (i % 3 == 0) tree.push_back(right = cache.add_token(right));
            if (i % 4 == 0) tree.push_back(cache.add_token(left));
        }
        const auto columns = static_cast<std::size_t>(cache.q_cols());
        for (const std::int64_t window : {0, 90}) {
            const std::vector<float> together = cache.run(tree, 531 - 1, window);
            for (std::size_t i = 0; i < tree.size(); i += 5) {
                const std::span<const float> expected = std::span(together).subspan(i * columns, columns);
                const std::vector<float> alone = cache.run({tree[i]}, 530, window);
                ASSERT_TRUE(same_bits(alone, expected)) << dtype_name(shape.dtype) << " node " << i;
                // As plain decoding has it: all before it committed; and with half of it in scratch.
                const auto before = std::ssize(cache.path(tree[i])) - 1;
                ASSERT_TRUE(same_bits(cache.run({tree[i]}, before, window), expected)) << "committed, node " << i;
                ASSERT_TRUE(same_bits(cache.run({tree[i]}, 300, window), expected)) << "scratch, node " << i;
            }
        }
    }
}

TEST_F(CudaAttention, PrefillChunksGiveTheBitsOfSingleTokens) {
    const std::vector<Case> shapes{{DType::F16, 4, 1, 64},
                                   {DType::BF16, 4, 2, 128},
                                   {DType::F16, 2, 1, 128, 5.0F},
                                   {DType::Q8_0, 4, 2, 64},
                                   {DType::F16, 8, 1, 64, 0.0F, true}};
    for (const Case& shape : shapes) {
        DeviceCache cache = cache_of(shape, 5);
        const std::int64_t n = is_card() ? 1024 : 700;
        const std::vector<int> chain = cache.path(cache.add_chain(-1, n));
        const auto columns = static_cast<std::size_t>(cache.q_cols());
        for (const std::int64_t begin : {std::int64_t{0}, std::int64_t{512}}) {
            const std::vector<int> chunk(chain.begin() + begin, begin == 0 ? chain.begin() + 512 : chain.end());
            const std::vector<float> together = cache.run(chunk, begin);
            for (std::size_t i = 0; i < chunk.size(); i += 37) {
                const std::vector<float> alone = cache.run({chunk[i]}, static_cast<std::int64_t>(i) + begin);
                ASSERT_TRUE(same_bits(alone, std::span(together).subspan(i * columns, columns)))
                    << dtype_name(shape.dtype) << " position " << begin + static_cast<std::int64_t>(i);
            }
        }
    }
}

// E1 over sizes of passes, across borders of steps, tiles and chunks; and none at all.
TEST_F(CudaAttention, PassesOfAnySizeGiveTheBitsOfSingleTokens) {
    const std::vector<Case> shapes{
        {DType::F16, 4, 1, 64}, {DType::BF16, 2, 1, 128}, {DType::F32, 2, 1, 64}, {DType::Q8_0, 2, 1, 128}};
    constexpr std::int64_t kBefore = 37;
    for (const Case& shape : shapes) {
        const KvLayout kv{shape.n_kv_heads, shape.head_dim, shape.dtype};
        reserve_workspace(device(), {.n_tokens = 513, .attention = {{kv, shape.n_q_heads}}});
        DeviceCache cache(exec(), kv, shape.n_q_heads, 7);
        const std::vector<int> chain = cache.path(cache.add_chain(-1, kBefore + 513));
        const auto columns = static_cast<std::size_t>(cache.q_cols());
        for (const std::int64_t n : {1, 2, 7, 8, 64, 513}) {
            const std::vector<int> pass(chain.begin() + kBefore, chain.begin() + kBefore + n);
            const std::vector<float> together = cache.run(pass, kBefore);
            for (const std::int64_t i : {std::int64_t{0}, n / 2, n - 1}) {
                const auto at = static_cast<std::size_t>(i);
                const std::vector<float> alone = cache.run({pass[at]}, kBefore);
                ASSERT_TRUE(same_bits(alone, std::span(together).subspan(at * columns, columns)))
                    << dtype_name(shape.dtype) << " token " << i << " of " << n;
            }
        }
        const DeviceFloats none(exec(), 0, cache.q_cols());
        attention(exec(), {.shape = kv, .q = none.view(), .out = none.view(), .n_q_heads = shape.n_q_heads});
        static_cast<void>(none.read());  // with the bands around it
    }
}

TEST_F(CudaAttention, PartsJoinToTheWhole) {
    for (const Case& shape : cases()) {
        DeviceCache cache = cache_of(shape, 6);
        const int trunk = cache.add_chain(-1, 900);
        std::vector<int> tree;
        for (int i = 0; i < 9; ++i) tree.push_back(cache.add_token(i % 2 == 0 ? trunk : tree.back()));
        for (const std::int64_t window : {0, 400}) {
            const std::vector<float> whole = cache.run(tree, 900, window);
            for (const std::vector<std::int64_t>& cuts :
                 {std::vector<std::int64_t>{1}, {3}, {1, 2, 3}, {2, 2}, {0, 4}, {0, 1, 9}})
                ASSERT_TRUE(same_bits(cache.run(tree, 900, window, cuts), whole))
                    << dtype_name(shape.dtype) << " " << cuts.size() << " cuts";
        }
    }
}

}  // namespace
}  // namespace slipstream::testing_cuda
