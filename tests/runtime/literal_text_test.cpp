// Spellings of control tokens that are text: with real tokenizers of each kind no token comes of them, the text stays
// as it is, and where nothing is spelt the ids are those of a plain encoding.
#include "runtime/template/literal_text.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"

namespace slipstream {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

const fs::path kTrained = SLIPSTREAM_GOLDEN_DIR "/tokenizer/trained";

std::vector<std::unique_ptr<Tokenizer>> tokenizers() {
    std::vector<std::unique_ptr<Tokenizer>> made;
    // llama2, gemma and metaspace put spaces in front, qwen2 and odd_steps normalise, prefix_space has greedy tokens.
    for (const char* name : {"llama3", "qwen2", "llama2", "gemma", "metaspace", "prefix_space", "unigram"}) {
        TokenizerSource source;
        source.tokenizer_json = kTrained / fmt::format("{}.json", name);
        made.push_back(make_tokenizer(source));
    }
    TokenizerSource source;
    source.sentencepiece_model = SLIPSTREAM_SOURCE_DIR "/tools/demo_model/target/tokenizer.model";
    made.push_back(make_tokenizer(source));
    return made;
}

// Control tokens, but for one that stands for what is unknown: it comes of other texts as well.
std::vector<TokenId> control_tokens(const Tokenizer& tokenizer) {
    std::vector<TokenId> ids;
    for (TokenId id = 0; id < tokenizer.vocab_size(); ++id)
        if (tokenizer.token_kind(id) == TokenKind::Control && tokenizer.piece(id) != "<unk>") ids.push_back(id);
    return ids;
}

TEST(LiteralText, NoTokenComesOfASpelling) {
    for (const auto& tokenizer : tokenizers()) {
        const LiteralMarker marker(*tokenizer);
        const std::string mark = unused_mark({});
        for (const TokenId id : control_tokens(*tokenizer)) {
            const std::string_view spelling = tokenizer->piece(id);
            SCOPED_TRACE(fmt::format("{}: {}", tokenizer->kind(), spelling));
            const std::string said = fmt::format("say {0} and <{0}{0}", spelling);
            ASSERT_TRUE(marker.is_spelt_in(said));
            const PromptText prompt = without_marks(marker.marked(said, mark), mark);
            EXPECT_EQ(prompt.text, said);
            EXPECT_EQ(prompt.literal_at.size(), 3U);
            const auto count = [&](const std::vector<TokenId>& ids) { return std::ranges::count(ids, id); };
            const std::int64_t n_bos = tokenizer->adds_bos() && tokenizer->bos_id() == id ? 1 : 0;
            EXPECT_EQ(count(tokenizer->encode_prompt(prompt.text, prompt.literal_at)), n_bos);
            EXPECT_EQ(count(tokenizer->encode_prompt(said, SpecialTokens::Parse)), n_bos + 3);
            // One of them alone: the others are still tokens.
            const std::vector<std::size_t> second{prompt.literal_at[1]};
            EXPECT_EQ(count(tokenizer->encode_prompt(said, second)), n_bos + 2);
        }
    }
}

TEST(LiteralText, TheTextStaysAsItIs) {
    for (const auto& tokenizer : tokenizers()) {
        if (tokenizer->kind() != "byte-level BPE" && tokenizer->kind() != "SentencePiece BPE") continue;
        const LiteralMarker marker(*tokenizer);
        const std::string mark = unused_mark({});
        for (const TokenId id : control_tokens(*tokenizer)) {
            const std::string said = fmt::format("say {0}, \xc3\xa9{0}", tokenizer->piece(id));
            const PromptText prompt = without_marks(marker.marked(said, mark), mark);
            EXPECT_EQ(tokenizer->decode(tokenizer->encode_prompt(prompt.text, prompt.literal_at)),
                      tokenizer->decode(tokenizer->encode(said, SpecialTokens::AsText)));
        }
    }
}

TEST(LiteralText, WithoutSpellingsNothingIsDifferent) {
    const std::string honest = "a < b | im_end > </ s >";
    for (const auto& tokenizer : tokenizers()) {
        const LiteralMarker marker(*tokenizer);
        EXPECT_FALSE(marker.is_spelt_in(honest));
        EXPECT_EQ(marker.marked(honest, "!"), honest);
        EXPECT_EQ(tokenizer->encode_prompt(honest, std::span<const std::size_t>()),
                  tokenizer->encode_prompt(honest, SpecialTokens::Parse));
    }
}

TEST(LiteralText, MarksComeOutAgain) {
    EXPECT_EQ(without_marks("", "!").text, "");
    const PromptText prompt = without_marks("!a!!b!", "!");
    EXPECT_EQ(prompt.text, "ab");
    EXPECT_THAT(prompt.literal_at, ElementsAre(0, 1, 1, 2));
    const std::vector<std::string_view> texts{"\xf0\x90\x98\x80", "\xf0\x90\x98\x81"};
    EXPECT_EQ(unused_mark(texts), "\xf0\x90\x98\x82");
}

}  // namespace
}  // namespace slipstream
