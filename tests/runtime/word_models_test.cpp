// What turns words into ids: merging short and long words alike, the unigram search against all ways to cut a text, and
// the tables behind them.
#include <atomic>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/base/interrupted.h"
#include "runtime/text/tokenizer/byte_spellings.h"
#include "runtime/text/tokenizer/merging.h"
#include "runtime/text/tokenizer/text_normalizer.h"
#include "runtime/text/tokenizer/vocabulary.h"
#include "runtime/text/tokenizer/word_models.h"
#include "tests/support/error_text.h"

namespace slipstream {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// --- Merging ---

/// The definition, word by word: again and again the lowest rank, the leftmost of equals.
std::vector<TokenId> merged_by_definition(const MergeTable& table, std::vector<TokenId> ids) {
    for (;;) {
        MergeTable::Merge best{MergeTable::kNoRank, -1};
        std::size_t at = 0;
        for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
            const MergeTable::Merge merge = table.find(ids[i], ids[i + 1]);
            if (merge.rank >= best.rank) continue;
            best = merge;
            at = i;
        }
        if (best.rank == MergeTable::kNoRank) return ids;
        ids[at] = best.id;
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
}

TEST(PairMerger, ShortAndLongWordsMergeByTheDefinition) {
    std::mt19937 random(11);
    for (int round = 0; round < 300; ++round) {
        // Ids from a small alphabet; ranks with equals among them, as tiktoken's table has.
        MergeTable table;
        TokenId next = 6;
        for (std::uint32_t rank = 0; rank < 60; ++rank) {
            const auto left = static_cast<TokenId>(random() % static_cast<unsigned>(next));
            const auto right = static_cast<TokenId>(random() % static_cast<unsigned>(next));
            table.set(left, right, {rank / 2, next++});
        }
        const PairMerger merger(std::move(table));
        PairMerger::Scratch scratch;
        for (const std::size_t length : {0U, 1U, 2U, 7U, 47U, 48U, 49U, 50U, 200U}) {
            std::vector<TokenId> word(length);
            for (TokenId& id : word) id = static_cast<TokenId>(random() % 6);
            std::vector<TokenId> ids = {-7};
            merger.merge(word, scratch, ids);
            std::vector<TokenId> expected = merged_by_definition(merger.table(), word);
            expected.insert(expected.begin(), -7);
            ASSERT_EQ(ids, expected) << "round " << round << ", length " << length;
        }
    }
}

TEST(PairMerger, ALongWordTakesNoQuadraticTime) {
    MergeTable table;
    table.set(0, 1, {0, 2});
    table.set(2, 2, {1, 3});
    table.set(3, 3, {2, 4});
    const PairMerger merger(std::move(table));
    std::vector<TokenId> word;
    for (int i = 0; i < 2'000'000; ++i) word.push_back(i % 2);  // a quadratic method needs hours
    PairMerger::Scratch scratch;
    std::vector<TokenId> ids;
    merger.merge(word, scratch, ids);
    EXPECT_EQ(ids.size(), 250'000U);
    EXPECT_EQ(ids.front(), 4);
    const std::atomic<bool> stop = true;  // nor is it waited for
    scratch.cancel = &stop;
    EXPECT_THROW(merger.merge(word, scratch, ids), Interrupted);
}

TEST(MergeTable, HoldsManyPairsAndTheLastOfEqualOnes) {
    for (const std::size_t announced : {0U, 20'000U}) {
        MergeTable table(announced);
        for (TokenId i = 0; i < 20'000; ++i) table.set(i, i * 7 % 1000, {static_cast<std::uint32_t>(i), i + 1});
        table.set(3, 21, {99, 100});
        EXPECT_EQ(table.size(), 20'000U);
        EXPECT_EQ(table.find(3, 21).rank, 99U);
        EXPECT_EQ(table.find(19'999, 19'999 * 7 % 1000).id, 20'000);
        EXPECT_EQ(table.find(3, 22).rank, MergeTable::kNoRank);
        EXPECT_EQ(table.find(21, 3).rank, MergeTable::kNoRank);
    }
}

// --- Tables ---

TEST(WordCache, RemembersWordsUntilItIsFull) {
    WordCache cache;
    const std::vector<TokenId> ids = {1, 2, 3};
    EXPECT_FALSE(cache.find("word").has_value());
    cache.remember("word", ids);
    ASSERT_TRUE(cache.find("word").has_value());
    EXPECT_THAT(*cache.find("word"), ElementsAre(1, 2, 3));
    EXPECT_FALSE(cache.find("words").has_value());
    const std::string long_word(WordCache::kMaxWordBytes + 1, 'x');
    EXPECT_FALSE(cache.find(long_word).has_value());
    cache.remember(long_word, ids);
    EXPECT_FALSE(cache.find(long_word).has_value());
    int n_known = 0;
    for (int round = 0; round < 2; ++round) {
        for (TokenId i = 0; i < 40'000; ++i) {
            const std::string word = std::to_string(i);
            if (const auto known = cache.find(word)) {
                ASSERT_THAT(*known, ElementsAre(i));
                ++n_known;
            } else {
                cache.remember(word, std::vector<TokenId>{i});
            }
        }
    }
    EXPECT_EQ(n_known, 40'000);  // they all fit
    for (std::size_t i = 0; i < WordCache::kMaxWords; ++i) {
        const std::string word = fmt::format("w{}", i);
        if (!cache.find(word)) cache.remember(word, ids);
    }
    EXPECT_FALSE(cache.find("word").has_value());  // it began anew
}

TEST(TokenVocabulary, RefusesIdsThatWouldTakeMuchMemory) {
    TokenVocabulary vocabulary;
    vocabulary.set(5, "five", TokenKind::Normal, "file");
    EXPECT_EQ(vocabulary.size(), 6);
    EXPECT_EQ(vocabulary.spelling(5), "five");
    EXPECT_EQ(vocabulary.kind(4), TokenKind::Unused);
    EXPECT_EQ(vocabulary.bytes(5), "five");
    vocabulary.set_bytes(5, "5");
    EXPECT_EQ(vocabulary.bytes(5), "5");
    EXPECT_EQ(vocabulary.spelling(-1), "");
    EXPECT_EQ(vocabulary.kind(6), TokenKind::Unused);
    EXPECT_THAT(error_text<FormatError>([&] { vocabulary.set(-1, "x", TokenKind::Normal, "file"); }),
                HasSubstr("id -1"));
    // Gaps add up.
    vocabulary.set(TokenVocabulary::kMaxGaps, "far", TokenKind::Normal, "file");
    EXPECT_THAT(
        error_text<FormatError>([&] { vocabulary.set(TokenVocabulary::kMaxGaps + 3, "x", TokenKind::Normal, "file"); }),
        HasSubstr("broken"));
}

TEST(Base64, ReadsWhatIsBase64) {
    EXPECT_EQ(decode_base64(""), "");
    EXPECT_EQ(decode_base64("IQ=="), "!");
    EXPECT_EQ(decode_base64("IQ"), "!");
    EXPECT_EQ(decode_base64("aGVsbG8="), "hello");
    EXPECT_EQ(decode_base64("/+8A"), std::string("\xff\xef\0", 3));
    for (const char* wrong : {"a", "aaaaa", "a b=", "aa*=", "=", "===="})
        EXPECT_FALSE(decode_base64(wrong).has_value()) << wrong;
}

// --- Unigram ---

/// The best way by trying all of them; nothing is rounded.
struct Best {
    double score = -1e300;
    std::vector<TokenId> ids;
};
Best best_by_trying(std::string_view text, const std::vector<UnigramSegmenter::Piece>& pieces, double unknown) {
    if (text.empty()) return {0, {}};
    Best best;
    const auto offer = [&](std::size_t length, double score, TokenId id) {
        Best rest = best_by_trying(text.substr(length), pieces, unknown);
        if (rest.score + score <= best.score) return;
        rest.ids.insert(rest.ids.begin(), id);
        best = {rest.score + score, rest.ids};
    };
    bool has_character = false;
    for (const auto& piece : pieces) {
        if (!text.starts_with(piece.text) || piece.use == UnigramSegmenter::Piece::Use::Never) continue;
        offer(piece.text.size(), piece.score, piece.id);
        has_character = has_character || piece.text.size() == 1;
    }
    if (!has_character) offer(1, unknown, UnigramSegmenter::kUnknown);
    return best;
}

TEST(UnigramSegmenter, FindsTheBestOfAllWays) {
    std::mt19937 random(2);
    const std::vector<std::string> texts = {"a", "b", "ab", "ba", "abc", "aa", "aab", "cab", "bca", "caba"};
    for (int round = 0; round < 200; ++round) {
        std::vector<UnigramSegmenter::Piece> pieces;
        for (std::size_t i = 0; i < texts.size(); ++i) {
            if (random() % 4 == 0) continue;
            // Scores are sums of distinct powers of two: no ties, no rounding.
            pieces.push_back({.text = texts[i],
                              .score = -1.0 - std::ldexp(static_cast<double>(random() % 4096), -10),
                              .id = static_cast<TokenId>(i),
                              .use = random() % 8 == 0 ? UnigramSegmenter::Piece::Use::Never
                                                       : UnigramSegmenter::Piece::Use::Chosen});
        }
        const UnigramSegmenter segmenter(pieces, -20, UnigramSegmenter::Sums::Double);
        UnigramSegmenter::Scratch scratch;
        for (int k = 0; k < 5; ++k) {
            std::string text;
            for (unsigned n = random() % 9; n > 0; --n) text += static_cast<char>('a' + random() % 3);
            std::vector<UnigramSegmenter::Segment> segments;
            segmenter.segment(text, scratch, segments);
            double score = 0;
            std::size_t length = 0;
            for (const auto& segment : segments) {
                length += segment.length;
                score += segment.id == UnigramSegmenter::kUnknown ? -20 : 0;
                for (const auto& piece : pieces) score += piece.id == segment.id ? piece.score : 0;
            }
            EXPECT_EQ(length, text.size());
            EXPECT_DOUBLE_EQ(score, best_by_trying(text, pieces, -20).score) << text;
        }
    }
}

TEST(UnigramWords, UnknownRunsAreOneTokenOrBytes) {
    IndexedVocabulary vocabulary;
    const std::vector<std::string> tokens = {"<unk>", "a", "b", "<0x58>", "<0x59>"};
    std::vector<double> scores;
    vocabulary.index = StringIndex(tokens.size());
    for (const std::string& token : tokens) {
        const auto id = static_cast<TokenId>(scores.size());
        vocabulary.tokens->set(id, token, TokenKind::Normal, "test");
        vocabulary.index.insert(token, id, [&](TokenId other) { return vocabulary.tokens->spelling(other); });
        scores.push_back(-1.0);
    }
    WordScratch scratch;
    const auto encode = [&](const UnigramWords& model, const std::string& word) {
        std::vector<TokenId> ids;
        model.encode(word, scratch, ids);
        return ids;
    };
    const UnigramWords plain(*vocabulary.tokens, vocabulary.index, scores, {.unk = 0}, "test");
    EXPECT_THAT(encode(plain, "aXYbZ"), ElementsAre(1, 0, 2, 0));
    EXPECT_THAT(encode(plain, "X<unk>a"), ElementsAre(0, 1));
    const UnigramWords bytes(*vocabulary.tokens, vocabulary.index, scores, {.unk = 0, .byte_fallback = true}, "test");
    EXPECT_THAT(encode(bytes, "aXYbZ"), ElementsAre(1, 3, 4, 2, 0));
    EXPECT_THAT(encode(bytes, "XZ"), ElementsAre(0));  // all of a run or nothing
    std::vector<TokenId> ids;
    bytes.encode_byte('X', ids);
    bytes.encode_byte(0xff, ids);
    EXPECT_THAT(ids, ElementsAre(3, 0));
    EXPECT_THAT(
        error_text<FormatError>([&] { UnigramWords(*vocabulary.tokens, vocabulary.index, scores, {}, "some.json"); }),
        HasSubstr("some.json: the unigram model has no unknown token"));
}

TEST(ByteBpe, AByteWithoutATokenIsUnknownOrDroppedAndNeverAControlToken) {
    TokenVocabulary vocabulary;
    for (int byte = 0; byte < 255; ++byte) {
        vocabulary.set(byte, std::to_string(byte), TokenKind::Normal, "test");
        vocabulary.set_bytes(byte, std::string(1, static_cast<char>(byte)));
    }
    const auto ids = [&](std::optional<TokenId> unk) {
        WordScratch scratch;
        std::vector<TokenId> made;
        ByteBpe(vocabulary, {}, ByteBpe::WholeWords::Merge, unk).encode("a\xff", scratch, made);
        return made;
    };
    EXPECT_THAT(ids(7), ElementsAre('a', 7));
    EXPECT_THAT(ids(std::nullopt), ElementsAre('a'));
    vocabulary.set_kind(7, TokenKind::Control);
    EXPECT_THAT(ids(7), ElementsAre('a'));
}

TEST(PrecompiledCharsmap, ABrokenOneIsRefusedOrHarmless) {
    EXPECT_THROW(PrecompiledCharsmap("", "test"), FormatError);
    EXPECT_THROW(PrecompiledCharsmap("1234567", "test"), FormatError);
    EXPECT_THROW(PrecompiledCharsmap(std::string("\x05\0\0\0abcdefgh", 12), "test"), FormatError);
    EXPECT_THROW(PrecompiledCharsmap(std::string("\x04\0\0\0abcdno end", 14), "test"), FormatError);
    std::mt19937 random(9);
    for (int round = 0; round < 2000; ++round) {
        std::string blob("\x40\0\0\0", 4);
        for (int i = 0; i < 0x40 + 20; ++i) blob += static_cast<char>(random());
        blob += '\0';
        const PrecompiledCharsmap map(blob, "test");
        std::string text;
        for (int i = 0; i < 8; ++i) text += static_cast<char>(random() % 128);
        if (const auto match = map.match(text, PrecompiledCharsmap::Rule::Longest)) {
            EXPECT_LE(match->length, text.size());
            EXPECT_LE(match->replacement.size(), 20U);
        }
        EXPECT_LE(map.replace_graphemes(text, 1000, nullptr).size(), 1000U);
    }
}

}  // namespace
}  // namespace slipstream
