// What is said is text, whatever it spells: with real tokenizers of each kind no token comes of them, the text stays
// as it is, and where nothing is spelt the ids are those of a plain encoding.
#include "runtime/text/chat/prompt_template.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "runtime/formats/model_files.h"

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

PromptTemplate template_of(std::string_view source, const Tokenizer& tokenizer) {
    return {ChatTemplate::parse(std::string(source), "test"), {}, tokenizer};
}

// The prompt of a template that says what the user said.
MarkedText prompt_of(const std::string& said, const Tokenizer& tokenizer,
                     std::string_view source = "{{ messages[0].content }}") {
    return template_of(source, tokenizer).render(std::vector<Message>{{"user", said}});
}

TEST(LiteralText, NoTokenComesOfASpelling) {
    for (const auto& tokenizer : tokenizers()) {
        for (const TokenId id : control_tokens(*tokenizer)) {
            const std::string_view spelling = tokenizer->piece(id);
            SCOPED_TRACE(fmt::format("{}: {}", tokenizer->kind(), spelling));
            const std::string said = fmt::format("say {0} and <{0}{0}", spelling);
            const MarkedText prompt = prompt_of(said, *tokenizer);
            EXPECT_EQ(prompt.bytes, said);
            const auto count = [&](const std::vector<TokenId>& ids) { return std::ranges::count(ids, id); };
            const std::int64_t n_bos = tokenizer->adds_bos() && tokenizer->bos_id() == id ? 1 : 0;
            EXPECT_EQ(count(tokenizer->encode_prompt(prompt)), n_bos);
            EXPECT_EQ(count(tokenizer->encode_prompt(said, SpecialTokens::Parse)), n_bos + 3);
            // One of them alone, and only its last byte: the others are still tokens.
            const std::size_t end = said.find(spelling, said.find(spelling) + 1) + spelling.size();
            EXPECT_EQ(count(tokenizer->encode_prompt({.bytes = said, .said = {{end - 1, end}}})), n_bos + 2);
        }
    }
}

TEST(LiteralText, TheTextStaysAsItIs) {
    for (const auto& tokenizer : tokenizers()) {
        if (tokenizer->kind() != "byte-level BPE" && tokenizer->kind() != "SentencePiece BPE") continue;
        for (const TokenId id : control_tokens(*tokenizer)) {
            const std::string said = fmt::format("say {0}, \xc3\xa9{0}", tokenizer->piece(id));
            const MarkedText prompt = prompt_of(said, *tokenizer);
            EXPECT_EQ(tokenizer->decode(tokenizer->encode_prompt(prompt)),
                      tokenizer->decode(tokenizer->encode(said, SpecialTokens::AsText)));
        }
    }
}

TEST(LiteralText, WithoutSpellingsNothingIsDifferent) {
    const std::string honest = "a < b | im_end > </ s >";
    for (const auto& tokenizer : tokenizers()) {
        EXPECT_EQ(tokenizer->encode_prompt(prompt_of(honest, *tokenizer)),
                  tokenizer->encode_prompt(honest, SpecialTokens::Parse));
        EXPECT_EQ(tokenizer->encode_prompt({.bytes = honest, .said = {}}),
                  tokenizer->encode_prompt(honest, SpecialTokens::Parse));
    }
}

// A tokenizer.json of the letters a to d, with these added tokens.
std::unique_ptr<Tokenizer> with_added_tokens(const fs::path& file, const std::string& added) {
    std::ofstream(file) << R"({"added_tokens": [)" << added
                        << R"(], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
            "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "merges": ["a b"], "unk_token": "?",
            "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "<": 4, "|": 5, ">": 6, "\u00c3": 7, "\u00a9": 8, "ab": 9, "?": 10}}})";
    TokenizerSource source;
    source.tokenizer_json = file;
    return make_tokenizer(source);
}

TEST(LiteralText, ATokenOfOneCharacterIsTextAsWell) {
    const fs::path file = fs::path(testing::TempDir()) / "literal_text_one.json";
    const auto tokenizer = with_added_tokens(file, R"({"id": 11, "content": "\u00e9", "special": true})");
    const std::string said =
        "a\xc3\xa9"
        "ab\xc3\xa9";
    EXPECT_THAT(tokenizer->encode_prompt(said, SpecialTokens::Parse), ElementsAre(0, 11, 9, 11));
    const MarkedText prompt = prompt_of(said, *tokenizer);
    EXPECT_THAT(tokenizer->encode_prompt(prompt), ElementsAre(0, 7, 8, 9, 7, 8));
    EXPECT_THAT(tokenizer->encode_prompt({.bytes = said, .said = {{5, 7}}}), ElementsAre(0, 11, 9, 7, 8));
    fs::remove(file);
}

TEST(LiteralText, UserDefinedTokensThatLookLikeTurnsCountAsControl) {
    const fs::path file = fs::path(testing::TempDir()) / "literal_text_user.json";
    const auto tokenizer = with_added_tokens(file, R"({"id": 11, "content": "<|im_end|>", "special": false},
                                                      {"id": 12, "content": "<|a|>", "special": false},
                                                      {"id": 13, "content": "cd", "special": false})");
    EXPECT_THAT(tokenizer->end_tokens(), ElementsAre(11));
    const MarkedText prompt = prompt_of("cd<|a|>", *tokenizer);
    EXPECT_THAT(tokenizer->encode_prompt(prompt), ElementsAre(13, 4, 5, 0, 5, 6));
    fs::remove(file);
}

TEST(LiteralText, AddedTokensAreShort) {
    const fs::path file = fs::path(testing::TempDir()) / "literal_text_long.json";
    const auto added = [&](std::size_t bytes) {
        return with_added_tokens(file, fmt::format(R"({{"id": 11, "content": "{}"}})", std::string(bytes, 'x')));
    };
    EXPECT_EQ(added(1024)->vocab_size(), 12);
    EXPECT_THROW(static_cast<void>(added(1025)), FormatError);
    fs::remove(file);
}

TEST(LiteralText, NothingThatATemplateDoesForgesAToken) {
    const fs::path file = fs::path(testing::TempDir()) / "literal_text_forged.json";
    const auto tokenizer = with_added_tokens(file, R"({"id": 11, "content": "<|a|>", "special": true})");
    const auto tokens = [&](const std::string& said, std::string_view source) {
        const MarkedText prompt = prompt_of(said, *tokenizer, source);
        return std::pair(prompt.bytes, std::ranges::count(tokenizer->encode_prompt(prompt), 11));
    };
    const auto forged = std::pair<std::string, std::int64_t>("<|a|>", 0);
    EXPECT_EQ(tokens("<|A|>", "{{ messages[0].content|lower }}"), forged);
    EXPECT_EQ(tokens("<|A|>", "{{ messages[0].content.lower() }}"), forged);
    EXPECT_EQ(tokens(" b<|a|>c ", "{{ messages[0].content.strip()[1:-1] }}"), forged);
    EXPECT_EQ(tokens(">|a|<", "{{ messages[0].content[::-1] }}"), forged);
    EXPECT_EQ(tokens("<b|a|b>", "{{ messages[0].content.split('b')|join }}"), forged);
    EXPECT_EQ(tokens("<|,a|>", "{{ ''.join(messages[0].content.split(',')) }}"), forged);
    EXPECT_EQ(tokens("<|a|>", "{% for c in messages[0].content %}{{ c }}{% endfor %}"), forged);
    EXPECT_EQ(tokens("<|a|>", "{{ messages[0].content|list|join }}"), forged);
    EXPECT_EQ(tokens("<|b|>", "{{ messages[0].content|replace('b', 'a') }}"), forged);
    EXPECT_EQ(tokens("a", "{{ '<|' ~ messages[0].content ~ '|>' }}"), forged);
    EXPECT_EQ(tokens("<|", "{{ '%s' if false else messages[0].content }}a|>"), forged);
    EXPECT_EQ(tokens("a", "{{ '<|{}|>'.format(messages[0].content) }}"), forged);
    EXPECT_EQ(tokens("|a|", "{% set x %}<{{ messages[0].content }}>{% endset %}{{ x|trim|string|safe }}"), forged);
    EXPECT_EQ(tokens("<|a|>", "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(messages[0].content) }}"), forged);
    EXPECT_EQ(tokens("<|a|>", "{{ (messages|map(attribute='content')|list)[0] }}"), forged);
    EXPECT_EQ(tokens("\"<|a|>\"", "{{ messages[0].content|from_json }}"), forged);
    EXPECT_EQ(tokens("<|a|>", "{{ messages[0].content|tojson }}").second, 0);
    EXPECT_EQ(tokens("<|a|>", "{{ messages[0] }}").second, 0);
    EXPECT_EQ(tokens("<|a|>", "{% filter indent %}{{ messages[0].content }}{% endfilter %}"), forged);
    EXPECT_EQ(tokens("<|", "{{ messages[0].content * 1 }}a|>"), forged);
    // The template's own stay tokens, whatever it learns from the message.
    EXPECT_EQ(tokens("<|a|>", "<|a|>{{ messages[0].content|length }}").second, 1);
    EXPECT_EQ(tokens("<|a|>", "{% if '<|a|>' in messages[0].content %}<|a|>{% endif %}").second, 1);
    EXPECT_EQ(tokens("<|a|>", "<|a|>{{ messages[0].content }}<|a|>").second, 2);
    fs::remove(file);
}

TEST(LiteralText, OnlyTheSystemAndTheRoleMaySpellTokens) {
    const TemplateValue messages = parse_template_json(
        R"([{"role": "system", "content": "s"}, {"role": "tool", "content": [{"text": "t"}], "n": {"k": "v"}}])", "m");
    const MarkedText text = ChatTemplate::parse("{{ messages[0] }}{{ messages[1] }}", "test")
                                .render({.messages = TemplateValue::list(
                                             {said_message(messages.items()[0]), said_message(messages.items()[1])})});
    std::string said;
    for (const TextSpan& span : text.said) said += text.bytes.substr(span.begin, span.end - span.begin);
    EXPECT_EQ(said, "texttkv");
}

}  // namespace
}  // namespace slipstream
