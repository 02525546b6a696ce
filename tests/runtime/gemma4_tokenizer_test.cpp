// The vocabulary of Gemma 4 in a GGUF file gives the ids of the tokenizers package, and its special tokens begin and
// end texts.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "runtime/text/utf8.h"
#include "tests/support/error_text.h"
#include "tests/support/random_texts.h"

namespace slipstream {
namespace {

using testing::ElementsAre;

const std::filesystem::path kTrained = SLIPSTREAM_GOLDEN_DIR "/tokenizer/trained";

nlohmann::json trained() {
    std::ifstream file(kTrained / "gemma4.json");
    return nlohmann::json::parse(file);
}

/// The arrays that a converter writes: byte tokens have a type of their own, marks of thoughts are user-defined.
PlainVocabulary gguf_vocabulary() {
    const nlohmann::json json = trained();
    PlainVocabulary vocabulary{.model = "gemma4"};
    const auto put = [&](std::size_t id, const std::string& spelling, std::int32_t type) {
        if (vocabulary.tokens.size() <= id) {
            vocabulary.tokens.resize(id + 1);
            vocabulary.types.resize(id + 1);
        }
        vocabulary.tokens[id] = spelling;
        vocabulary.types[id] = type;
    };
    for (const auto& [spelling, id] : json["model"]["vocab"].items())
        put(id.get<std::size_t>(), spelling, spelling.starts_with("<0x") ? 6 : 1);
    for (const auto& token : json["added_tokens"]) {
        const auto spelling = token["content"].get<std::string>();
        const bool is_visible = spelling == "<|channel>" || spelling == "<channel|>";
        put(token["id"].get<std::size_t>(), spelling, is_visible ? 4 : 3);
        if (spelling == "<bos>") vocabulary.bos_id = token["id"].get<std::int64_t>();
        if (spelling == "<eos>") vocabulary.eos_id = token["id"].get<std::int64_t>();
        if (spelling == "<unk>") vocabulary.unk_id = token["id"].get<std::int64_t>();
    }
    for (const auto& merge : json["model"]["merges"])
        vocabulary.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    vocabulary.add_bos = true;
    vocabulary.add_space_prefix = false;
    return vocabulary;
}

std::u32string utf32(std::string_view text) {
    std::u32string result;
    for (std::size_t at = 0; at < text.size(); at += next_utf8(text.substr(at)).length)
        result += code_point(text.substr(at));
    return result;
}

TEST(Gemma4Tokenizer, GivesTheIdsOfTheTokenizersPackage) {
    const PlainVocabulary vocabulary = gguf_vocabulary();
    const auto tokenizer = make_tokenizer(TokenizerParts{.vocabulary = &vocabulary});
    EXPECT_EQ(tokenizer->kind(), "BPE");
    auto texts = random_texts(20000);
    std::vector<std::u32string> contents;
    const nlohmann::json json = trained();
    for (const auto& token : json["added_tokens"]) contents.push_back(utf32(token["content"].get<std::string>()));
    put_spellings(texts, contents);
    IdHash hash;
    for (const std::u32string& text : texts) {
        std::string bytes;
        for (const char32_t point : text) append_utf8(point, bytes);
        hash.add(tokenizer->encode(bytes, SpecialTokens::Parse));
    }
    std::ifstream golden(kTrained / "gemma4.txt");
    std::string as_text, parsed;
    ASSERT_TRUE(golden >> as_text >> parsed);
    EXPECT_EQ(fmt::format("{:016x}", hash.value()), parsed);
}

TEST(Gemma4Tokenizer, TextComesBackWithItsSpacesAndNewlines) {
    const PlainVocabulary vocabulary = gguf_vocabulary();
    const auto tokenizer = make_tokenizer(TokenizerParts{.vocabulary = &vocabulary});
    for (const std::string text : {"", " a", "a  b\n\n\n\n\nc ", "\xf0\x9f\xa6\x99 and \xff\xfe", "<0x41>\t\r\n"})
        EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, SpecialTokens::AsText)), text);
    EXPECT_FALSE(tokenizer->adds_space_prefix());
    // A run of newlines that is a token is that token, though no merge makes it.
    PlainVocabulary more = vocabulary;
    more.tokens.emplace_back("\n\n\n");
    more.types.push_back(1);
    EXPECT_THAT(make_tokenizer(TokenizerParts{.vocabulary = &more})->encode("\n\n\n", SpecialTokens::AsText),
                ElementsAre(static_cast<TokenId>(more.tokens.size() - 1)));
    EXPECT_EQ(tokenizer->encode("\n\n\n", SpecialTokens::AsText).size(), 2U);
}

TEST(Gemma4Tokenizer, ItsTurnsBeginAndEnd) {
    const PlainVocabulary vocabulary = gguf_vocabulary();
    const auto tokenizer = make_tokenizer(TokenizerParts{.vocabulary = &vocabulary});
    const auto id_of = [&](std::string_view spelling) {
        return static_cast<TokenId>(std::ranges::find(vocabulary.tokens, spelling) - vocabulary.tokens.begin());
    };
    EXPECT_TRUE(tokenizer->adds_bos());
    EXPECT_EQ(tokenizer->encode_prompt("", SpecialTokens::Parse), std::vector<TokenId>{id_of("<bos>")});
    EXPECT_THAT(tokenizer->end_tokens(), testing::UnorderedElementsAre(id_of("<eos>"), id_of("<turn|>")));
    EXPECT_EQ(tokenizer->token_kind(id_of("<unk>")), TokenKind::Unknown);
    EXPECT_EQ(tokenizer->encode("<|channel>", SpecialTokens::Parse), std::vector<TokenId>{id_of("<|channel>")});
    // What a user says is no mark, whatever the type of the mark's token.
    for (const char* mark : {"<|turn>", "<turn|>", "<|channel>", "<channel|>", "<bos>"}) {
        MarkedText said{.bytes = mark, .said = {}};
        append_span(said.said, {0, said.bytes.size()});
        const auto ids = tokenizer->encode_prompt(said);
        EXPECT_EQ(std::ranges::count(ids, id_of(mark)), std::string_view(mark) == "<bos>" ? 1 : 0) << mark;
        EXPECT_EQ(tokenizer->decode(std::vector<TokenId>(ids.begin() + 1, ids.end())), mark);
    }
}

TEST(Gemma4Tokenizer, ArraysThatContradictAreRefused) {
    const auto message = [](const PlainVocabulary& vocabulary) {
        return error_text([&] { static_cast<void>(make_tokenizer(TokenizerParts{.vocabulary = &vocabulary})); });
    };
    PlainVocabulary broken = gguf_vocabulary();
    broken.merges.clear();
    EXPECT_EQ(message(broken), "tokenizer.ggml.merges: is missing or empty");
    broken = gguf_vocabulary();
    broken.merges.front() = "zebra \xe2\x96\x81";
    EXPECT_THAT(message(broken), testing::HasSubstr("tokenizer.ggml.merges"));
    broken = gguf_vocabulary();
    broken.types.pop_back();
    EXPECT_THAT(message(broken), testing::HasSubstr("tokens and"));
    broken = gguf_vocabulary();
    broken.bos_id = 100000;
    EXPECT_THAT(message(broken), testing::HasSubstr("BOS id 100000"));
    broken = gguf_vocabulary();
    broken.tokens[7].clear();
    EXPECT_THAT(message(broken), testing::HasSubstr("token 7 is empty"));
}

}  // namespace
}  // namespace slipstream
