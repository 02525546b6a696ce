#include "runtime/loop/prompt_cache.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"

namespace slipstream {
namespace {

// A part has 1 MiB, so that its memory is a mapping of its own.
constexpr KvLayout kLayout{.n_kv_heads = 8, .head_dim = 128, .dtype = DType::F16};
constexpr std::array<KvLayout, 2> kLayouts{kLayout, kLayout};

std::vector<TokenId> tokens_of(TokenId first, std::int64_t n) {
    std::vector<TokenId> tokens(static_cast<std::size_t>(n));
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
}

/// Keeps a chunk whose parts begin with `mark` and their layer.
KeptChunk* keep(PromptCache& cache, const PromptCache::Path& path, std::span<const TokenId> tokens, char mark,
                Phase phase = Phase::Decode, std::int64_t first_layer = 0) {
    return cache.keep(
        path, tokens, phase, [&](std::int64_t layer) { return layer >= first_layer; },
        [&](std::int64_t layer, std::byte* out) {
            const std::array<char, 2> bytes{mark, static_cast<char>('0' + layer)};
            std::memcpy(out, bytes.data(), bytes.size());
        });
}

std::string mark_of(const KeptChunk& chunk, std::int64_t layer) {
    return chunk.part(layer) == nullptr ? "" : std::string(reinterpret_cast<const char*>(chunk.part(layer)), 2);
}

TEST(PromptCache, ChunksAreFoundByWhatIsBeforeThemTheirTokensAndTheirPhase) {
    PromptCache cache(kLayouts, std::size_t{64} << 20);
    const std::vector<TokenId> tokens = tokens_of(1, 512);
    const auto first = std::span(tokens).first(256);
    const auto second = std::span(tokens).last(256);
    KeptChunk* const a = keep(cache, {}, first, 'a');
    KeptChunk* const b = keep(cache, {a}, second, 'b');
    KeptChunk* const prefilled = keep(cache, {}, first, 'p', Phase::Prefill);
    keep(cache, {}, second, 'x');
    EXPECT_EQ(keep(cache, {a}, second, 'c'), b);
    EXPECT_EQ(mark_of(*b, 1), "b1");

    const PromptCache::Match match = cache.match(tokens, 0);
    EXPECT_THAT(match.chunks, testing::ElementsAre(a, b));
    EXPECT_EQ(match.n_tokens, 512);
    EXPECT_THAT(cache.match(tokens, 512).chunks, testing::ElementsAre(prefilled));
    std::vector<TokenId> other = tokens;
    other[300] = -1;
    EXPECT_EQ(cache.match(other, 0).n_tokens, 300);
    other[255] = -1;
    EXPECT_EQ(cache.match(other, 0).n_tokens, 255);
    EXPECT_EQ(cache.match(std::span(tokens).first(10), 0).n_tokens, 10);
    EXPECT_EQ(cache.match({}, 0).n_tokens, 0);
}

TEST(PromptCache, OfSeveralChunksTheOneWithTheLongestCommonBeginningIsFound) {
    PromptCache cache(kLayouts, std::size_t{64} << 20);
    std::vector<TokenId> tokens = tokens_of(1, 256);
    keep(cache, {}, tokens, 'a');
    tokens[100] = -1;
    KeptChunk* const b = keep(cache, {}, tokens, 'b');
    tokens[50] = -1;
    keep(cache, {}, tokens, 'c');
    std::vector<TokenId> asked = tokens_of(1, 256);
    asked[100] = -1;
    asked[200] = -1;
    EXPECT_THAT(cache.match(asked, 0).chunks, testing::ElementsAre(b));
    EXPECT_EQ(cache.match(asked, 0).n_tokens, 200);
}

TEST(PromptCache, AMissingPartIsAddedLater) {
    PromptCache cache(kLayouts, std::size_t{64} << 20);
    const std::vector<TokenId> tokens = tokens_of(1, 256);
    KeptChunk* const a = keep(cache, {}, tokens, 'a', Phase::Decode, 1);
    EXPECT_EQ(mark_of(*a, 0), "");
    EXPECT_EQ(mark_of(*a, 1), "a1");
    EXPECT_EQ(keep(cache, {}, tokens, 'b'), a);
    EXPECT_EQ(mark_of(*a, 0), "b0");
    EXPECT_EQ(mark_of(*a, 1), "a1");
}

// If all layers have windows, the first chunks of a long text may have no parts, but those after them do.
TEST(PromptCache, AChunkWithoutPartsLeadsToOthers) {
    PromptCache cache(kLayouts, std::size_t{64} << 20);
    KeptChunk* const a = keep(cache, {}, tokens_of(1, 256), 'a', Phase::Decode, 2);
    ASSERT_NE(a, nullptr);
    EXPECT_LT(cache.bytes(), 8192U);
    KeptChunk* const b = keep(cache, {a}, tokens_of(257, 256), 'b');
    EXPECT_THAT(cache.match(tokens_of(1, 512), 0).chunks, testing::ElementsAre(a, b));
    EXPECT_EQ(a->part(0), nullptr);
    EXPECT_EQ(mark_of(*b, 0), "b0");
}

TEST(PromptCache, AnEndGivesWayToTheChunkThatBeginsLikeIt) {
    PromptCache cache(kLayouts, std::size_t{64} << 20);
    const std::vector<TokenId> tokens = tokens_of(1, 256);
    keep(cache, {}, std::span(tokens).first(100), 'a');
    keep(cache, {}, tokens_of(2, 100), 'b');
    keep(cache, {}, tokens, 'c');
    EXPECT_EQ(cache.n_chunks(), 2);
    EXPECT_EQ(cache.n_dropped(), 0);
}

TEST(PromptCache, TheLeastRecentlyUsedChunkWithoutOneAfterItGoesFirst) {
    PromptCache probe(kLayouts, std::size_t{64} << 20);
    PromptCache cache(kLayouts, 3 * probe.chunk_bytes());
    cache.begin_text();
    KeptChunk* const a = keep(cache, {}, tokens_of(1, 256), 'a');
    keep(cache, {a}, tokens_of(2, 256), 'b');
    cache.begin_text();
    KeptChunk* const c = keep(cache, {}, tokens_of(3, 256), 'c');
    EXPECT_EQ(cache.bytes(), cache.limit_bytes());
    cache.begin_text();
    cache.use({a});
    ASSERT_NE(keep(cache, {}, tokens_of(4, 256), 'd'), nullptr);  // in place of b, which was used before c
    EXPECT_EQ(cache.match(tokens_of(3, 256), 0).chunks, PromptCache::Path{c});
    std::vector<TokenId> ab = tokens_of(1, 256);
    std::ranges::copy(tokens_of(2, 256), std::back_inserter(ab));
    EXPECT_EQ(cache.match(ab, 0).n_tokens, 256);
    ASSERT_NE(keep(cache, {}, tokens_of(5, 256), 'e'), nullptr);  // in place of c
    // What the text has used itself is not dropped.
    EXPECT_EQ(keep(cache, {}, tokens_of(6, 256), 'f'), nullptr);
    EXPECT_EQ(cache.n_dropped(), 2);
    EXPECT_EQ(cache.bytes(), cache.limit_bytes());
}

TEST(PromptCache, NothingIsKeptThatExceedsTheLimit) {
    PromptCache cache(kLayouts, kLayout.chunk_bytes() * 2);  // without room for what is remembered of the chunk
    EXPECT_EQ(keep(cache, {}, tokens_of(1, 256), 'a'), nullptr);
    EXPECT_EQ(cache.bytes(), 0U);
    EXPECT_FALSE(cache.system_was_short());
}

TEST(PromptCache, ASystemThatIsShortOfMemoryIsReported) {
    std::size_t available = kLayout.chunk_bytes() * 2;
    PromptCache cache(kLayouts, std::size_t{64} << 20, [&] { return std::exchange(available, 0); });
    EXPECT_NE(keep(cache, {}, tokens_of(1, 256), 'a'), nullptr);
    EXPECT_FALSE(cache.system_was_short());
    EXPECT_EQ(keep(cache, {}, tokens_of(2, 256), 'b'), nullptr);
    EXPECT_TRUE(cache.system_was_short());
    EXPECT_EQ(cache.n_chunks(), 1);
}

// States of recurrent layers. Those of a layer have 576 floats, and begin with a mark and their layer.

constexpr KvLayout kState{
    .state = {.n_key_heads = 1, .n_value_heads = 1, .key_dim = 32, .value_dim = 16, .conv_width = 2}};
constexpr std::array<KvLayout, 3> kHybrid{kState, kLayout, kState};

KeptChunk* keep_kv(PromptCache& cache, const PromptCache::Path& path, std::span<const TokenId> tokens,
                   Phase phase = Phase::Decode) {
    return cache.keep(
        path, tokens, phase, [](std::int64_t) { return true; }, [](std::int64_t, std::byte*) {});
}

bool keep_states(PromptCache& cache, const PromptCache::Path& path, std::int64_t n_tokens, char mark) {
    return cache.keep_states(path, n_tokens, [&](std::int64_t layer, std::byte* out) {
        const std::array<char, 2> bytes{mark, static_cast<char>('0' + layer)};
        std::memcpy(out, bytes.data(), bytes.size());
    });
}

std::string mark_of(const PromptCache& cache, const PromptCache::Match& match) {
    if (match.states == nullptr) return "";
    return std::string(reinterpret_cast<const char*>(cache.part(*match.states, 0)), 2) +
           std::string(reinterpret_cast<const char*>(cache.part(*match.states, 2)), 2);
}

TEST(PromptCache, StatesAreFoundAfterTheLastPositionWhoseTokensMatch) {
    PromptCache cache(kHybrid, std::size_t{64} << 20);
    const std::vector<TokenId> tokens = tokens_of(1, 512);
    KeptChunk* const a = keep_kv(cache, {}, std::span(tokens).first(256));
    KeptChunk* const b = keep_kv(cache, {a}, std::span(tokens).last(256));
    EXPECT_EQ(mark_of(cache, cache.match(tokens, 0)), "");
    EXPECT_TRUE(keep_states(cache, {a}, 256, 's'));
    EXPECT_TRUE(keep_states(cache, {a, b}, 200, 't'));
    EXPECT_TRUE(keep_states(cache, {a}, 100, 'r'));
    EXPECT_TRUE(keep_states(cache, {a}, 256, 'x'));  // kept already
    EXPECT_EQ(cache.n_states(), 3);
    const std::vector<std::pair<std::int64_t, std::string>> found{{512, "t0t2"}, {456, "t0t2"}, {455, "s0s2"},
                                                                  {256, "s0s2"}, {255, "r0r2"}, {99, ""}};
    for (const auto& [n_tokens, mark] : found)
        EXPECT_EQ(mark_of(cache, cache.match(std::span(tokens).first(n_tokens), 0)), mark) << n_tokens;
    EXPECT_EQ(cache.match(tokens, 0).n_in_states, 456);
    EXPECT_THAT(cache.match(tokens, 0).to_states, testing::ElementsAre(a, b));
    EXPECT_EQ(cache.match(tokens, 512).states, nullptr);  // another phase
    // Of another KV chunk than the one with the longest common beginning.
    std::vector<TokenId> other = tokens;
    other[470] = -1;
    KeptChunk* const c = keep_kv(cache, {a}, std::span(other).last(256));
    other[500] = -1;
    const PromptCache::Match match = cache.match(other, 0);
    EXPECT_THAT(match.chunks, testing::ElementsAre(a, c));
    EXPECT_THAT(match.to_states, testing::ElementsAre(a, b));
    EXPECT_EQ(match.n_in_states, 456);
}

TEST(PromptCache, StatesStayWithTheChunkThatBeginsLikeTheirs) {
    PromptCache cache(kHybrid, std::size_t{64} << 20);
    const std::vector<TokenId> tokens = tokens_of(1, 256);
    KeptChunk* const end = keep_kv(cache, {}, std::span(tokens).first(200));
    EXPECT_TRUE(keep_states(cache, {end}, 100, 's'));
    EXPECT_TRUE(keep_states(cache, {end}, 200, 't'));
    KeptChunk* const whole = keep_kv(cache, {}, tokens);
    EXPECT_EQ(cache.n_chunks(), 1);
    EXPECT_EQ(cache.n_states(), 2);
    EXPECT_EQ(mark_of(cache, cache.match(tokens, 0)), "t0t2");
    EXPECT_EQ(mark_of(cache, cache.match(std::span(tokens).first(150), 0)), "s0s2");
    EXPECT_THAT(cache.match(tokens, 0).to_states, testing::ElementsAre(whole));
    EXPECT_EQ(cache.bytes(), cache.chunk_bytes() + 2 * cache.states_bytes());
}

TEST(PromptCache, OfAPathWithoutABranchTheLastTwoStatesStay) {
    PromptCache cache(kHybrid, std::size_t{64} << 20);
    const std::vector<TokenId> tokens = tokens_of(1, 1024);
    PromptCache::Path path;
    for (std::size_t i = 0; i < 4; ++i) path.push_back(keep_kv(cache, path, std::span(tokens).subspan(256 * i, 256)));
    for (std::size_t i = 1; i <= 4; ++i) EXPECT_TRUE(keep_states(cache, {path.begin(), path.begin() + i}, 256, 's'));
    EXPECT_TRUE(keep_states(cache, {path[0]}, 100, 's'));
    const auto last_of = [&](std::int64_t n) { return cache.match(std::span(tokens).first(n), 0).n_in_states; };
    // Another phase is no branch.
    keep_kv(cache, {path[0], path[1]}, tokens_of(2000, 256), Phase::Prefill);
    cache.thin_states(path);
    EXPECT_EQ(cache.n_states(), 2);
    EXPECT_EQ(last_of(1024), 1024);
    EXPECT_EQ(last_of(1023), 768);
    EXPECT_EQ(last_of(767), 0);
    // Below a branch two more stay.
    for (const std::int64_t n : {1, 2}) EXPECT_TRUE(keep_states(cache, {path.begin(), path.begin() + n}, 256, 's'));
    EXPECT_TRUE(keep_states(cache, {path[0]}, 100, 's'));
    KeptChunk* const other = keep_kv(cache, {path[0], path[1]}, tokens_of(2000, 256));
    ASSERT_NE(other, nullptr);
    cache.thin_states(path);
    EXPECT_EQ(cache.n_states(), 4);
    EXPECT_EQ(last_of(767), 512);
    EXPECT_EQ(last_of(511), 256);
    EXPECT_EQ(last_of(255), 0);
    EXPECT_EQ(cache.n_dropped_states(), 0);  // memory was not short
}

TEST(PromptCache, StatesGoBeforeChunksOfTheSameText) {
    PromptCache probe(kHybrid, std::size_t{64} << 20);
    const std::size_t chunk = probe.chunk_bytes();
    const std::size_t states = probe.states_bytes();
    PromptCache cache(kHybrid, 3 * chunk + 2 * states);
    cache.begin_text();
    KeptChunk* const a = keep_kv(cache, {}, tokens_of(1, 256));
    EXPECT_TRUE(keep_states(cache, {a}, 256, 's'));
    cache.begin_text();
    KeptChunk* const b = keep_kv(cache, {}, tokens_of(1000, 256));
    EXPECT_TRUE(keep_states(cache, {b}, 256, 't'));
    cache.begin_text();
    KeptChunk* const c = keep_kv(cache, {}, tokens_of(2000, 256));  // leaves room for states
    EXPECT_EQ(cache.n_dropped_states(), 1);
    EXPECT_EQ(cache.match(tokens_of(1, 256), 0).states, nullptr);
    EXPECT_EQ(cache.n_chunks(), 3);
    EXPECT_TRUE(keep_states(cache, {c}, 256, 'u'));
    EXPECT_EQ(cache.bytes(), cache.limit_bytes());
    // The first text goes before the states of the second one.
    EXPECT_TRUE(keep_states(cache, {c}, 100, 'v'));
    EXPECT_EQ(cache.n_dropped(), 1);
    EXPECT_EQ(mark_of(cache, cache.match(tokens_of(1000, 256), 0)), "t0t2");
    EXPECT_LE(cache.bytes(), cache.limit_bytes());
    // What the text uses itself stays.
    cache.use(cache.match(tokens_of(1000, 256), 0));
    for (std::int64_t i = 1; i < 100; ++i)
        if (!keep_states(cache, {c}, i, 'w')) break;
    EXPECT_EQ(mark_of(cache, cache.match(tokens_of(1000, 256), 0)), "t0t2");
    EXPECT_LE(cache.bytes(), cache.limit_bytes());
}

TEST(PromptCache, AFailedCopyOfStatesKeepsNothing) {
    PromptCache cache(kHybrid, std::size_t{64} << 20);
    KeptChunk* const a = keep_kv(cache, {}, tokens_of(1, 256));
    const std::size_t bytes = cache.bytes();
    EXPECT_THROW(cache.keep_states({a}, 256, [](std::int64_t, std::byte*) { throw IoError("a failed copy"); }),
                 IoError);
    EXPECT_EQ(cache.bytes(), bytes);
    EXPECT_EQ(cache.n_states(), 0);
}

TEST(PromptCache, AFailedCopyKeepsNothing) {
    PromptCache cache(kLayouts, std::size_t{64} << 20);
    const auto fail = [](std::int64_t layer, std::byte*) {
        if (layer == 1) throw IoError("a failed copy");
    };
    EXPECT_THROW(cache.keep(
                     {}, tokens_of(1, 256), Phase::Decode, [](std::int64_t) { return true; }, fail),
                 IoError);
    EXPECT_EQ(cache.bytes(), 0U);
    EXPECT_EQ(cache.n_chunks(), 0);
}

}  // namespace
}  // namespace slipstream
