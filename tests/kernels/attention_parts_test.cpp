// Attention whose fold is cut into parts, as for KV that arrives piece by piece: the bits of one whole call, however it
// is cut, with nothing of a part but its own chunks in memory.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "kernels/attention.h"
#include "kernels/cpu_device.h"
#include "tests/kernels/attention_cases.h"

namespace slipstream {
namespace {

using testing_attention::Cache;
using testing_attention::case_name;

constexpr int kThreadCounts[] = {1, 2, 3};

/// Ways to cut a fold over `n_chunks`: before each chunk, before all of them, at random, parts without chunks included.
std::vector<std::vector<std::int64_t>> cuts_of(std::int64_t n_chunks, std::mt19937& random) {
    std::vector<std::vector<std::int64_t>> all;
    for (std::int64_t chunk = 0; chunk <= n_chunks; ++chunk) all.push_back({chunk});
    all.emplace_back(static_cast<std::size_t>(n_chunks));
    std::iota(all.back().begin(), all.back().end(), 1);
    for (int i = 0; i < 3; ++i) {
        std::vector<std::int64_t>& cuts = all.emplace_back(1 + random() % 4);
        for (std::int64_t& cut : cuts) cut = static_cast<std::int64_t>(random()) % (n_chunks + 3);
        std::sort(cuts.begin(), cuts.end());
    }
    return all;
}

class AttentionPartsTest : public testing_attention::FormsAndTypes {
protected:
    AttentionPartsTest() {
        for (const int n_threads : kThreadCounts)
            devices_.push_back(std::make_unique<CpuDevice>(CpuDeviceOptions{
                .n_threads = n_threads, .form = testing_attention::form_or_best(std::get<0>(GetParam()))}));
    }
    CpuDevice& one_thread() { return *devices_.front(); }

    /// The pass that `cache` has prepared, cut in every way, with every number of threads.
    void expect_whole_bits(const Cache& cache, std::int64_t window, std::mt19937& random) {
        const std::vector<float> whole = cache.attend(one_thread(), window, {});
        for (const float value : whole) ASSERT_TRUE(std::isfinite(value));
        for (const auto& cuts : cuts_of(cache.n_chunks(), random))
            for (const auto& device : devices_)
                ASSERT_EQ(cache.attend(*device, window, cuts), whole) << fmt::format(
                    "window {}, cut before {}, {} threads", window, fmt::join(cuts, ", "), device->pool().n_threads());
    }

private:
    std::vector<std::unique_ptr<CpuDevice>> devices_;
};

struct Case {
    std::int64_t n_q_heads, n_kv_heads, head_dim;
    int n_committed;
    int n_tokens;
    float softcap = 0.0F;
};
// One token: chunks are dealt out to threads. 20 tokens of a group of 4: several units. Ends of what is committed
// around steps and chunks; trees that reach over the border of a chunk, so that one consists of scratch rows alone.
constexpr Case kCases[] = {{1, 1, 2, 0, 1},         {4, 2, 24, 0, 20},   {6, 2, 16, 255, 3},   {4, 4, 8, 256, 20},
                           {3, 1, 80, 257, 1},      {4, 1, 20, 250, 20}, {8, 2, 64, 700, 1},   {4, 1, 32, 600, 20},
                           {2, 1, 64, 1024, 1},     {2, 2, 16, 1023, 5}, {64, 1, 512, 520, 2}, {4, 1, 256, 600, 3},
                           {4, 1, 64, 600, 3, 5.0F}};

TEST_P(AttentionPartsTest, HaveTheBitsOfOneWholeCallHoweverItIsCut) {
    for (const Case& which : kCases) {
        SCOPED_TRACE(fmt::format("{} heads over {} of {}, {} tokens behind {}", which.n_q_heads, which.n_kv_heads,
                                 which.head_dim, which.n_tokens, which.n_committed));
        const std::uint32_t seed = 17;
        std::mt19937 random(seed);
        Cache cache(one_thread(), {which.n_kv_heads, which.head_dim, dtype()}, which.n_q_heads, seed, which.softcap);
        if (which.n_committed % 2 == 0) cache.with_sinks();
        for (int i = 0; i < std::max(1, which.n_committed); ++i) cache.add_token(i - 1);
        std::vector<int> tree;
        for (int i = 0; i < which.n_tokens; ++i) {  // mostly a chain, with branches
            const int parent = i == 0              ? std::max(1, which.n_committed) - 1
                               : random() % 4 == 0 ? tree[random() % tree.size()]
                                                   : tree.back();
            tree.push_back(cache.add_token(parent));
        }
        cache.prepare(tree, which.n_committed, 3);
        for (const std::int64_t window : {0, 40, 300}) expect_whole_bits(cache, window, random);
    }
}

// A window may have left whole chunks behind: they are read by no part, and may be gone.
TEST_P(AttentionPartsTest, AWindowNeedsNoChunkBelowIt) {
    CpuDevice& device = one_thread();
    Cache cache(device, {2, 16, dtype()}, 4, 5);
    for (int i = 0; i < 1000; ++i) cache.add_token(i - 1);
    cache.prepare({999}, 999, 0);
    const std::vector<float> expected = cache.attend(device, 100, {});
    AttentionArgs args = cache.args(100);
    std::vector<const std::byte*> chunks(args.chunks, args.chunks + 4);
    std::fill_n(chunks.begin(), 3, nullptr);
    args.chunks = chunks.data();
    std::vector<float> out(expected.size());
    args.out = matrix_view(out.data(), 1, 64);
    attention(cache.exec(), args);
    EXPECT_EQ(out, expected);
}

INSTANTIATE_TEST_SUITE_P(Forms, AttentionPartsTest,
                         testing::Combine(testing::ValuesIn(kCpuForms),
                                          testing::Values(DType::F32, DType::F16, DType::BF16, DType::Q8_0)),
                         case_name);

TEST(AttentionPartsDeathTest, PartsThatCannotBeAreBugs) {
    CpuDevice device({});
    Cache cache(device, {1, 8, DType::F16}, 1, 5);
    for (int i = 0; i < 601; ++i) cache.add_token(i - 1);
    cache.prepare({600}, 600, 0);
    std::vector<float> out(8), state(attention_state_floats(1, 1, 8));
    ASSERT_EQ(state.size(), 10U);
    const auto with = [&](auto&& change) {
        AttentionArgs args = cache.args(0);
        args.out = matrix_view(out.data(), 1, 8);
        args.state = state.data();
        change(args);
        attention(cache.exec(), args);
    };
    EXPECT_DEATH(with([](AttentionArgs& args) { args.end_chunk = 0; }), "sees nothing of chunks");
    EXPECT_DEATH(with([](AttentionArgs& args) { args.first_chunk = 3; }), "sees nothing of chunks");
    EXPECT_DEATH(with([](AttentionArgs& args) {
                     args.first_chunk = 2;
                     args.end_chunk = 1;
                 }),
                 "chunks \\[2, 1\\) of attention");
    EXPECT_DEATH(with([](AttentionArgs& args) {
                     args.part = AttentionPart::First;
                     args.state = nullptr;
                 }),
                 "without a state");
    EXPECT_DEATH(with([](AttentionArgs& args) {
                     args.part = AttentionPart::Last;
                     args.out = TensorView();
                 }),
                 "attention of \\[1, 8\\] into \\[0, 0\\]");
    std::vector<const std::byte*> chunks(cache.args(0).chunks, cache.args(0).chunks + 3);
    chunks[1] = nullptr;
    EXPECT_DEATH(with([&](AttentionArgs& args) { args.chunks = chunks.data(); }), "chunk 1 of .* is missing");
    with([&](AttentionArgs& args) {  // chunk 1 is not of this part
        args.chunks = chunks.data();
        args.part = AttentionPart::First;
        args.end_chunk = 1;
        args.out = TensorView();
    });
}

}  // namespace
}  // namespace slipstream
