// Steady state of a device allocates nothing: copies, events and parts of attention, once they have run. Every operator
// new of this program is counted, in all threads; device memory shows in the budget.
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "kernels/cuda/attention/attention_planner.h"
#include "kernels/cuda/host/graph_arrays.h"
#include "kernels/workspace.h"
#include "tests/kernels/attention_cases.h"
#include "tests/support/allocation_counter.h"

namespace slipstream {
namespace {

using testing_attention::Cache;

TEST(KernelsAllocation, IsSeenWhereItHappens) {
    const std::int64_t before = allocations().n;
    std::vector<int>(100).shrink_to_fit();
    EXPECT_GT(allocations().n, before);
}

TEST(KernelsAllocation, CopiesAndEventsTakeNone) {
    CpuDevice device({.link_bytes_per_second = 1e9});
    const auto compute = device.make_stream(StreamKind::Compute);
    const auto in = device.make_stream(StreamKind::CopyIn);
    const auto out = device.make_stream(StreamKind::CopyOut);
    const auto arrived = device.make_event();
    const auto flushed = device.make_event();
    std::vector<char> host(4096), on_device(4096);
    const std::int64_t before = allocations().n;
    for (int round = 0; round < 500; ++round) {
        in->copy(on_device.data(), host.data(), host.size());
        compute->wait(*arrived, in->record(*arrived));
        out->wait(*arrived, arrived->recorded());
        out->copy(host.data(), on_device.data(), host.size());
        in->wait(*flushed, out->record(*flushed));
    }
    in->synchronize();
    out->synchronize();
    EXPECT_EQ(allocations().n, before);
}

TEST(KernelsAllocation, PartsOfAttentionTakeNoneAfterWorkspaceIsReserved) {
    for (const int n_threads : {1, 3}) {
        CpuDevice device({.n_threads = n_threads});
        const KvLayout shape{2, 32, DType::F16};
        Cache cache(device, shape, 4, 3);
        for (int i = 0; i < 601; ++i) cache.add_token(i - 1);
        cache.prepare({600}, 600, 0);
        reserve_workspace(device, {.n_tokens = 1, .attention = {{shape, 4}}});
        std::vector<float> out(4 * 32), state(attention_state_floats(1, 4, 32));
        const std::size_t used = device.budget().used_bytes();
        const std::int64_t before = allocations().n;
        AttentionArgs args = cache.args(0);
        args.out = matrix_view(out.data(), 1, 4 * 32);
        args.state = state.data();
        for (const std::int64_t chunk : {0, 1, 2}) {
            args.part = chunk == 0 ? AttentionPart::First : chunk == 1 ? AttentionPart::Middle : AttentionPart::Last;
            args.first_chunk = chunk;
            args.end_chunk = chunk + 1;
            attention(cache.exec(), args);
        }
        EXPECT_EQ(allocations().n, before);
        EXPECT_EQ(device.budget().peak_bytes(), used);
    }
}

// The host's share of a pass on a card: plans of attention, and the arrays of a graph's launch.
TEST(KernelsAllocation, PlansAndArraysOfGraphsTakeNone) {
    constexpr std::int32_t kTokens = 48;
    std::vector<std::int32_t> positions, begin, rows, nodes(kTokens);
    std::vector<const std::byte*> chunks(64);
    const auto grow = [&](std::int32_t n_committed, std::int32_t round) {  // a chain with leaves
        positions.clear(), begin.clear(), rows.clear();
        for (std::int32_t i = 0; i < kTokens; ++i) {
            const std::int32_t depth = i % 2 == 0 ? i / 2 : (i / 2 + round) % (i / 2 + 1);
            positions.push_back(n_committed + depth);
            begin.push_back(static_cast<std::int32_t>(rows.size()));
            for (std::int32_t step = 0; step < depth; ++step) rows.push_back(2 * step);
            rows.push_back(i);
            nodes[i] = i + round;
        }
    };
    rows.reserve(std::size_t{kTokens} * kTokens), positions.reserve(kTokens), begin.reserve(kTokens);
    grow(2600, 0);
    AttentionArgs args{.shape = {.n_kv_heads = 8, .head_dim = 128, .dtype = DType::F16},
                       .q = matrix_view(static_cast<const float*>(nullptr), kTokens, 32 * 128),
                       .n_q_heads = 32,
                       .positions = positions.data(),
                       .chunks = chunks.data(),
                       .n_committed = 2600,
                       .path_begin = begin.data(),
                       .path_rows = rows.data()};
    std::vector<std::byte> block(std::size_t{512} << 10);
    cuda::GraphArrays arrays(block.size(), {128});
    static_cast<void>(arrays.add_rows(nodes.data(), kTokens));
    const cuda::GraphAttention& attention = arrays.add_attention(args);
    for (int layer = 0; layer < 32; ++layer) static_cast<void>(arrays.add_table(chunks.data() + layer, attention));
    cuda::AttentionPlanner planner;
    for (int round = 0; round < 80; ++round) {
        const std::int64_t before = allocations().n;
        grow(2600 + round, round);
        args.n_committed = 2600 + round;
        ASSERT_TRUE(arrays.refresh(block.data(), {.n_committed = args.n_committed}));
        for (int layer = 0; layer < 4; ++layer) static_cast<void>(planner.plan(args, {128}));
        if (round >= 68) {  // the planner has met as many plans as it keeps
            EXPECT_EQ(allocations().n, before) << round;
        }
    }
    EXPECT_EQ(planner.n_made(), 80U);
}

}  // namespace
}  // namespace slipstream
