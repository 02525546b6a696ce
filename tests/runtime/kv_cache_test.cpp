// Bookkeeping of the KV cache: nodes, positions, commits, what it refuses; memory of the host that follows the text.
#include "runtime/cache/kv_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "offload/pinned_arena.h"
#include "tests/support/error_text.h"

namespace slipstream {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// An index of a tree or of a pass's tokens is no node of the cache, nor the other way round.
static_assert(!std::is_convertible_v<std::int32_t, NodeId> && !std::is_convertible_v<NodeId, std::int32_t>);

const KvLayout kShape{.n_kv_heads = 2, .head_dim = 8, .dtype = DType::F16};

std::vector<KvLayout> layers(std::size_t n) {
    return std::vector<KvLayout>(n, kShape);
}

class KvCacheTest : public testing::Test {
protected:
    CpuDevice device_{{}};
    std::unique_ptr<Stream> stream_ = device_.make_stream(StreamKind::Compute);
    ExecRef exec() { return {device_, *stream_}; }
};

TEST_F(KvCacheTest, NodesKnowTheirPositionsAndCommitForgetsTheRest) {
    KvCache cache(device_, layers(3), 600, 10);
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
    const KvCache cache(device_, layers(2), 20 * 256 + 1, 4);  // 21 chunks a layer: extents of 16 and 5
    const std::size_t chunk = 2U * 2 * 256 * 8 * 2;
    EXPECT_EQ(kShape.chunk_bytes(), chunk);
    EXPECT_EQ(device_.budget().used_bytes(MemoryTag::Kv), 2 * 21 * chunk + 2 * 2 * 4 * kShape.scratch_row_bytes());
    EXPECT_EQ(cache.chunks(1)[15] + 0, cache.chunks(1)[0] + 15 * chunk) << "an extent is contiguous";
    CpuDevice small({.memory_bytes = chunk});
    EXPECT_THROW(KvCache(small, layers(2), 256, 4), OutOfBudget);
}

TEST_F(KvCacheTest, ReservesHostMemoryOfWhatStreamsAtOnce) {
    const std::size_t chunk = kShape.chunk_bytes();
    PinnedArena arena({.limit_bytes = 27 * chunk, .page_lock = PageLock::Pageable});
    {
        KvCache cache(device_, layers(2), 20 * 256, 8, {.resident_chunks = {3, 20}, .arena = &arena});
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
    EXPECT_THROW(KvCache(device_, layers(2), 20 * 256, 8, {.resident_chunks = {3, 9}, .arena = &arena}), OutOfBudget);
}

// Pages of [data, data + bytes) that are in memory.
std::size_t present_bytes(std::byte* data, std::size_t bytes) {
    constexpr std::size_t kPage = HostPages::kPageBytes;
    std::vector<unsigned char> pages(bytes / kPage);
    EXPECT_EQ(mincore(data, bytes, pages.data()), 0);
    return kPage *
           static_cast<std::size_t>(std::ranges::count_if(pages, [](unsigned char page) { return (page & 1U) != 0; }));
}

class HostExtentsTest : public KvCacheTest {
protected:
    static constexpr std::int64_t kChunks = 40;
    const std::size_t chunk_ = kShape.chunk_bytes();
    PinnedArena arena_{{.limit_bytes = 1U << 30, .page_lock = PageLock::Pageable}};
    // Layer 1 has two resident chunks.
    DeviceKv store_{device_, layers(2), kChunks, 1, std::vector<std::int64_t>{0, 2}};
};

TEST_F(HostExtentsTest, MemoryFollowsTheText) {
    HostExtents extents(arena_, store_);
    EXPECT_EQ(arena_.used_bytes(), (kChunks + kChunks - 2) * chunk_);
    std::byte* layers[] = {extents.chunk(0, 0), extents.chunk(1, 2)};
    const auto present = [&](std::int64_t layer) {
        const std::int64_t n = kChunks - store_.resident_chunks(layer);
        return present_bytes(layers[layer], static_cast<std::size_t>(n) * chunk_);
    };
    EXPECT_EQ(present(0), 3 * chunk_) << "rounds are of all layers";
    EXPECT_EQ(present(1), 3 * chunk_);
    extents.wait(16);
    EXPECT_EQ(present(0), 16 * chunk_);
    extents.wait(17);
    EXPECT_EQ(present(0), 17 * chunk_);
    EXPECT_EQ(present(1), 17 * chunk_);
    extents.ask(kChunks);
    EXPECT_EQ(extents.chunk(0, kChunks - 1), layers[0] + (kChunks - 1) * chunk_);
    EXPECT_EQ(present(0), kChunks * chunk_);
    EXPECT_EQ(present(1), (kChunks - 2) * chunk_);
    EXPECT_EQ(extents.end_of_extent(0, 15), 16);
    EXPECT_EQ(extents.end_of_extent(1, 17), 18);
    EXPECT_EQ(extents.end_of_extent(1, 18), 34);
}

class StreamingCacheTest : public KvCacheTest {
protected:
    const std::size_t chunk_ = kShape.chunk_bytes();
    std::atomic<std::size_t> available_ = std::size_t{1} << 40;  // of the system
    PinnedArena arena_{{.limit_bytes = 1U << 30, .page_lock = PageLock::Pageable, .available_bytes = [this] {
                            return available_.load();
                        }}};
    KvCache cache_{device_, layers(1), 64 * 256, 64, {.resident_chunks = {0}, .arena = &arena_}};

    std::vector<NodeId> path_of(std::int64_t n) {
        std::vector<NodeId> path;
        for (std::int64_t i = 0; i < n; ++i) path.push_back(cache_.add_node(i == 0 ? kCommittedTip : path.back()));
        return path;
    }
    void grow_to(std::int64_t n_tokens) {
        while (cache_.n_committed() < n_tokens)
            cache_.commit(exec(), path_of(std::min<std::int64_t>(n_tokens - cache_.n_committed(), 64)));
    }
};

TEST_F(StreamingCacheTest, AChunkIsBroughtHalfAChunkAheadByAThread) {
    grow_to(126);
    static_cast<void>(cache_.add_node(kCommittedTip));
    EXPECT_EQ(cache_.host()->extents().brought_bytes(), 0U);
    static_cast<void>(cache_.add_node(NodeId(0)));
    EXPECT_EQ(cache_.host()->extents().brought_bytes(), 0U);
    EXPECT_EQ(cache_.position(cache_.add_node(NodeId(1))), 128);
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (cache_.host()->extents().brought_bytes() == 0 && std::chrono::steady_clock::now() < give_up)
        std::this_thread::yield();
    EXPECT_EQ(cache_.host()->extents().brought_bytes(), chunk_);
    cache_.forget();
    grow_to(5 * 256 + 64);
    EXPECT_EQ(cache_.host()->extents().brought_bytes(), 5 * chunk_);
    cache_.truncate(exec(), 10);
    EXPECT_EQ(cache_.host()->extents().brought_bytes(), 5 * chunk_);
}

TEST_F(StreamingCacheTest, WhereTheSystemHasNoMoreACommitSaysSoAndHasDoneNothing) {
    available_ = chunk_;
    cache_.host()->extents().wait(16);
    available_ = chunk_ - 1;
    grow_to(16 * 256 - 1);
    grow_to(17 * 256 - 20);
    const std::vector<NodeId> last = path_of(30);
    EXPECT_THAT(error_text<OutOfBudget>([&] { cache_.commit(exec(), last); }),
                AllOf(HasSubstr("the system does not have 16.0 KiB for the KV cache"), HasSubstr("close other")));
    EXPECT_EQ(cache_.n_committed(), 17 * 256 - 20);
    EXPECT_EQ(cache_.n_nodes(), 30);
    EXPECT_EQ(cache_.host()->n_chunks(), 16);
    available_ = chunk_;  // another program has ended
    cache_.commit(exec(), last);
    EXPECT_EQ(cache_.host()->n_chunks(), 17);
}

// A prompt within the resident chunks of all layers flushes nothing, and what fails behind it costs nothing of it.
TEST_F(KvCacheTest, WhatIsResidentEverywhereIsWholeAfterAFailure) {
    PinnedArena arena({.limit_bytes = 16U << 20, .page_lock = PageLock::Pageable});
    KvCache cache(device_, layers(2), 2048, 64, {.resident_chunks = {2, 3}, .arena = &arena});
    cache.reserve(512);
    cache.publish(0);
    EXPECT_EQ(cache.keep_intact_prefix(exec()), 512);
}

TEST_F(KvCacheTest, WhatIsResidentEverywhereIsCutWithinAChunk) {
    PinnedArena arena({.limit_bytes = 16U << 20, .page_lock = PageLock::Pageable});
    KvCache cache(device_, layers(2), 2048, 64, {.resident_chunks = {2, 3}, .arena = &arena});
    cache.reserve(512);
    cache.publish(0);
    cache.truncate(exec(), 300);
    EXPECT_EQ(cache.n_committed(), 300);
    EXPECT_EQ(cache.keep_intact_prefix(exec()), 300);
}

// What a text that was cut away still flushes, over a link that takes its time, must not land on what is restored.
TEST_F(KvCacheTest, RestoringWaitsForTheFlushesOfTheTextBefore) {
    CpuDevice device({.n_threads = 1, .link_bytes_per_second = 1 << 20});  // a chunk in 16 ms
    const auto stream = device.make_stream(StreamKind::Compute);
    const ExecRef at{device, *stream};
    PinnedArena arena({.limit_bytes = 16U << 20, .page_lock = PageLock::Pageable});
    KvCache cache(device, layers(8), 1024, 256, {.resident_chunks = std::vector<std::int64_t>(8), .arena = &arena});
    std::vector<NodeId> path;
    for (int i = 0; i < 256; ++i) path.push_back(cache.add_node(path.empty() ? kCommittedTip : path.back()));
    for (std::int64_t layer = 0; layer < 8; ++layer)
        for (std::byte* rows : {cache.scratch_k(layer), cache.scratch_v(layer)})
            std::fill_n(rows, 256 * kShape.scratch_row_bytes(), std::byte{1});
    cache.commit(at, path);
    cache.truncate(at, 0);
    cache.restore(at, 0, 256, [](std::int64_t, std::int64_t, std::byte* out) {
        std::fill_n(out, kShape.chunk_bytes(), std::byte{2});
    });
    std::vector<std::byte> chunk(kShape.chunk_bytes());
    for (std::int64_t layer = 0; layer < 8; ++layer) {
        cache.read_chunk(at, layer, 0, chunk.data());
        EXPECT_EQ(std::ranges::count(chunk, std::byte{2}), std::ssize(chunk)) << layer;
    }
}

// Rows that a cut drops stay where they are until others are written there.
TEST_F(KvCacheTest, ACutIsUndoneWhileAChunkHasItsVersion) {
    KvCache cache(device_, layers(2), 600, 512);
    const auto commit = [&](std::int64_t n, std::byte value) {
        std::vector<NodeId> path;
        for (std::int64_t i = 0; i < n; ++i) path.push_back(cache.add_node(path.empty() ? kCommittedTip : path.back()));
        for (std::int64_t layer = 0; layer < 2; ++layer)
            for (std::byte* rows : {cache.scratch_k(layer), cache.scratch_v(layer)})
                std::fill_n(rows, static_cast<std::size_t>(n) * kShape.scratch_row_bytes(), value);
        cache.commit(exec(), path);
    };
    commit(500, std::byte{1});
    std::vector<std::byte> before(kShape.chunk_bytes());
    cache.read_chunk(exec(), 1, 1, before.data());
    const std::uint64_t first = cache.chunk_version(0);
    const std::uint64_t second = cache.chunk_version(1);
    cache.truncate(100);
    commit(20, std::byte{2});
    EXPECT_NE(cache.chunk_version(0), first);
    EXPECT_EQ(cache.chunk_version(1), second);
    cache.truncate(0);
    cache.restore(exec(), 0, 256, [](std::int64_t, std::int64_t, std::byte* out) {
        std::fill_n(out, kShape.chunk_bytes(), std::byte{3});
    });
    EXPECT_EQ(cache.chunk_version(1), second);
    cache.recommit(500);
    EXPECT_EQ(cache.n_committed(), 500);
    std::vector<std::byte> after(kShape.chunk_bytes());
    cache.read_chunk(exec(), 1, 1, after.data());
    EXPECT_EQ(after, before);
    commit(1, std::byte{4});
    EXPECT_NE(cache.chunk_version(1), second);
    cache.truncate(0);
    const std::uint64_t third = cache.chunk_version(1);
    cache.reserve(512);  // a prompt that is given up may have written rows
    cache.rollback(0);
    EXPECT_NE(cache.chunk_version(1), third);
}

TEST_F(KvCacheTest, ARingOrAStreamLosesWhatACutDrops) {
    const KvCache ring(device_, layers(1), 8192, 8, {.windows = {256}});
    EXPECT_EQ(ring.chunk_version(0), 0U);
    PinnedArena arena({.limit_bytes = 16U << 20, .page_lock = PageLock::Pageable});
    const KvCache stream(device_, layers(1), 2048, 8, {.resident_chunks = {2}, .arena = &arena});
    EXPECT_EQ(stream.chunk_version(0), 0U);
}

TEST_F(KvCacheTest, MisuseIsABug) {
    KvCache cache(device_, layers(1), 3, 4);
    const NodeId a = cache.add_node(kCommittedTip);
    const NodeId b = cache.add_node(a);
    const NodeId c = cache.add_node(b);
    EXPECT_DEATH(cache.add_node(c), "position 3 of a context of 3");
    EXPECT_DEATH(cache.add_node(NodeId(9)), "node below 9");
    EXPECT_DEATH(cache.commit(exec(), std::vector<NodeId>{b}), "does not follow");
    cache.add_node(a);
    EXPECT_DEATH(cache.add_node(a), "4 of 4 in use");
    EXPECT_DEATH(cache.truncate(1), "1 of 0 positions");
}

}  // namespace
}  // namespace slipstream
