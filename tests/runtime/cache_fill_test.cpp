// A filled cache stands as one that passes filled: how much is committed, which values, and that a pass goes on from
// it.
#include "runtime/cache/cache_fill.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/tensor_view.h"
#include "kernels/cpu_device.h"
#include "runtime/pass/forward.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

const KvLayout kShape{.n_kv_heads = 2, .head_dim = 8, .dtype = DType::F32};
constexpr std::int64_t kLayers = 3;

class CacheFill : public testing::Test {
protected:
    KvCache make(std::int64_t context, std::int64_t max_nodes) {
        return {device_, std::vector<KvLayout>(kLayers, kShape), context, max_nodes};
    }
    ExecRef exec() { return {device_, *stream_}; }

    CpuDevice device_{{}};
    std::unique_ptr<Stream> stream_ = device_.make_stream(StreamKind::Compute);
};

// The whole chunks below `n_chunks` of a layer, as bytes.
std::vector<std::byte> chunk_bytes(const KvCache& cache, std::int64_t layer, std::int64_t n_chunks) {
    std::vector<std::byte> bytes;
    for (std::int64_t i = 0; i < n_chunks; ++i)
        bytes.insert(bytes.end(), cache.chunks(layer)[i], cache.chunks(layer)[i] + cache.layout(layer).chunk_bytes());
    return bytes;
}

TEST_F(CacheFill, CommitsWhatWasAskedAndSaysSo) {
    KvCache cache = make(600, 7);
    std::vector<std::int64_t> heard;
    fill_cache(cache, exec(), 515, 1, [&](std::int64_t n) { heard.push_back(n); });
    EXPECT_EQ(cache.n_committed(), 515);
    EXPECT_EQ(cache.n_nodes(), 0);
    ASSERT_EQ(heard.size(), 74U);  // ceil(515 / 7): a piece is no larger than the scratch
    EXPECT_EQ(heard.front(), 7);
    EXPECT_EQ(heard.back(), 515);
    fill_cache(cache, exec(), 515, 1, [&](std::int64_t) { FAIL() << "nothing was missing"; });
    fill_cache(cache, exec(), 600, 1);
    EXPECT_EQ(cache.n_committed(), 600);
    EXPECT_DEATH(fill_cache(cache, exec(), 601, 1), "a context of 600");
    EXPECT_DEATH(fill_cache(cache, exec(), 599, 1), "599 positions wanted");
}

TEST_F(CacheFill, ValuesFollowFromSeedLayerAndPosition) {
    KvCache whole = make(512, 64);
    KvCache in_parts = make(512, 5);
    KvCache other = make(512, 64);
    fill_cache(whole, exec(), 512, 7);
    fill_cache(in_parts, exec(), 100, 7);
    fill_cache(in_parts, exec(), 512, 7);
    fill_cache(other, exec(), 512, 8);
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
        EXPECT_EQ(chunk_bytes(whole, layer, 2), chunk_bytes(in_parts, layer, 2)) << layer;
        EXPECT_NE(chunk_bytes(whole, layer, 2), chunk_bytes(other, layer, 2)) << layer;
    }
    EXPECT_NE(chunk_bytes(whole, 0, 2), chunk_bytes(whole, 1, 2));
}

TEST_F(CacheFill, ValuesAreNormal) {
    KvCache cache = make(512, 64);
    fill_cache(cache, exec(), 512, 3);
    double sum = 0;
    double squares = 0;
    double fourth = 0;
    double n = 0;
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
        const std::vector<std::byte> bytes = chunk_bytes(cache, layer, 2);
        for (std::size_t at = 0; at < bytes.size(); at += sizeof(float)) {
            float value;
            std::memcpy(&value, bytes.data() + at, sizeof(value));
            ASSERT_TRUE(std::isfinite(value));
            sum += value;
            squares += value * value;
            fourth += std::pow(value, 4);
            n += 1;
        }
    }
    EXPECT_EQ(n, kLayers * 2 * 2 * 16 * 256);
    // 49152 values: the mean's deviation is 0.005, the variance's 0.006, the fourth moment's 0.044; five of each.
    EXPECT_NEAR(sum / n, 0.0, 0.025);
    EXPECT_NEAR(squares / n, 1.0, 0.03);
    EXPECT_NEAR(fourth / n, 3.0, 0.22);
}

TEST_F(CacheFill, AnExceptionLeavesWhatWasHeardOf) {
    KvCache cache = make(512, 64);
    std::int64_t heard = 0;
    const auto give_up = [&](std::int64_t n) {
        heard = n;
        if (n >= 200) throw 1;
    };
    EXPECT_THROW(fill_cache(cache, exec(), 512, 1, give_up), int);
    EXPECT_EQ(cache.n_committed(), heard);
    EXPECT_EQ(cache.n_nodes(), 0);
    EXPECT_LT(heard, 512);
}

// Logits of a chain of three tokens behind 700 filled positions, fed in passes of `n`.
std::vector<float> logits_behind_fill(DType kv_dtype, std::uint64_t seed, std::size_t n) {
    const auto files = make_tiny_model({.window = 100, .kv_dtype = kv_dtype});
    CpuDevice device({.n_threads = 2, .form = {}});
    const Model model(*files, device, {.context_tokens = 1024, .kv_dtype = kv_dtype, .on_progress = {}});
    KvCache cache(device, model.kv_layouts(), 1024, 8);
    Forward forward(model, {.max_tokens = 8, .max_logit_rows = 8});
    fill_cache(cache, forward.exec(), 700, seed);
    const std::vector<TokenId> tokens{5, 6, 7};
    std::vector<float> all;
    for (std::size_t at = 0; at < tokens.size(); at += n) {
        const auto part = std::span(tokens).subspan(at, std::min(n, tokens.size() - at));
        std::vector<NodeId> nodes;
        std::vector<std::int32_t> rows;
        for (std::size_t i = 0; i < part.size(); ++i) {
            nodes.push_back(cache.add_node(i == 0 ? kCommittedTip : nodes.back()));
            rows.push_back(static_cast<std::int32_t>(i));
        }
        const ConstTensorView logits = forward.run(cache, part, nodes, rows);
        for (std::int64_t i = 0; i < logits.rows(); ++i)
            all.insert(all.end(), float_row(logits, i), float_row(logits, i) + logits.cols());
        cache.commit(forward.exec(), nodes);
    }
    return all;
}

TEST(CacheFillForward, APassGoesOnFromIt) {
    for (const DType kv_dtype : {DType::F16, DType::BF16, DType::F32, DType::Q8_0}) {
        const std::vector<float> logits = logits_behind_fill(kv_dtype, 1, 3);
        ASSERT_EQ(logits.size(), 3U * 97);
        for (const float logit : logits) ASSERT_TRUE(std::isfinite(logit)) << dtype_name(kv_dtype);
        EXPECT_EQ(logits, logits_behind_fill(kv_dtype, 1, 1)) << "E1 holds behind it: " << dtype_name(kv_dtype);
        EXPECT_NE(logits, logits_behind_fill(kv_dtype, 2, 3)) << "the rows are attended to: " << dtype_name(kv_dtype);
    }
}

}  // namespace
}  // namespace slipstream
