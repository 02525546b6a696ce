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
