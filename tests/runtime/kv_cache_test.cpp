// Bookkeeping of the KV cache: nodes, positions, commits, and what it refuses.
#include "runtime/cache/kv_cache.h"

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "offload/pinned_arena.h"

namespace slipstream {
namespace {

const KvShape kShape{.n_kv_heads = 2, .head_dim = 8, .dtype = DType::F16};

class KvCacheTest : public testing::Test {
protected:
    CpuDevice device_{{}};
    std::unique_ptr<Stream> stream_ = device_.make_stream(StreamKind::Compute);
    ExecRef exec() { return {device_, *stream_}; }
};

TEST_F(KvCacheTest, NodesKnowTheirPositionsAndCommitForgetsTheRest) {
    KvCache cache(device_, kShape, 3, 600, 10);
    const NodeId a = cache.add_node(kCommittedTip);
    const NodeId b = cache.add_node(a);
    const NodeId c = cache.add_node(a);
    EXPECT_EQ(cache.position(a), 0);
    EXPECT_EQ(cache.position(c), 1);
    EXPECT_EQ(cache.parent(b), a);
    cache.commit(exec(), std::vector<NodeId>{a, c});
    EXPECT_EQ(cache.n_committed(), 2);
    EXPECT_EQ(cache.n_nodes(), 0);
    EXPECT_EQ(cache.position(cache.add_node(kCommittedTip)), 2);
    cache.forget();
    cache.truncate(1);
    EXPECT_EQ(cache.n_committed(), 1);
}

TEST_F(KvCacheTest, TakesItsMemoryOnceInExtents) {
    const KvCache cache(device_, kShape, 2, 20 * 256 + 1, 4);  // 21 chunks a layer: extents of 16 and 5
    const std::size_t chunk = 2U * 2 * 256 * 8 * 2;
    EXPECT_EQ(kShape.chunk_bytes(), chunk);
    EXPECT_EQ(device_.budget().used_bytes(MemoryTag::Kv), 2 * 21 * chunk + 2 * 2 * 4 * kShape.scratch_row_bytes());
    EXPECT_EQ(cache.chunks(1)[15] + 0, cache.chunks(1)[0] + 15 * chunk) << "an extent is contiguous";
    CpuDevice small({.memory_bytes = chunk});
    EXPECT_THROW(KvCache(small, kShape, 2, 256, 4), OutOfBudget);
}

TEST_F(KvCacheTest, TakesHostMemoryOfWhatStreamsAtOnce) {
    const std::size_t chunk = kShape.chunk_bytes();
    PinnedArena arena({.limit_bytes = 27 * chunk, .page_lock = PageLock::Pageable});
    {
        KvCache cache(device_, kShape, 2, 20 * 256, 8, {.resident_chunks = {3, 20}, .arena = &arena});
        EXPECT_EQ(arena.used_bytes(), 17 * chunk);
        for (int i = 0; i < 20 * 256 / 8; ++i) {
            std::vector<NodeId> path;
            for (int k = 0; k < 8; ++k) path.push_back(cache.add_node(path.empty() ? kCommittedTip : path.back()));
            cache.commit(exec(), path);
        }
        EXPECT_EQ(cache.host()->n_chunks(), 20);
        EXPECT_EQ(arena.peak_bytes(), 17 * chunk);
    }
    EXPECT_EQ(arena.used_bytes(), 0U);
    EXPECT_THROW(KvCache(device_, kShape, 2, 20 * 256, 8, {.resident_chunks = {3, 9}, .arena = &arena}), OutOfBudget);
}

TEST_F(KvCacheTest, MisuseIsABug) {
    KvCache cache(device_, kShape, 1, 3, 4);
    const NodeId a = cache.add_node(kCommittedTip);
    const NodeId b = cache.add_node(a);
    const NodeId c = cache.add_node(b);
    EXPECT_DEATH(cache.add_node(c), "position 3 of a context of 3");
    EXPECT_DEATH(cache.add_node(9), "node below 9");
    EXPECT_DEATH(cache.commit(exec(), std::vector<NodeId>{b}), "does not follow");
    cache.add_node(a);
    EXPECT_DEATH(cache.add_node(a), "4 of 4 in use");
    EXPECT_DEATH(cache.truncate(1), "1 of 0 positions");
}

}  // namespace
}  // namespace slipstream
