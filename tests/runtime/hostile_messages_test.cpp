// Messages that try to spell control tokens: raw, in full width, in other cases, with characters in between that a
// normaliser removes, in parts that a template's text completes. No control token comes of them, by any tokenizer, in
// any frame. The suite takes a part of the messages, the slow label all.
#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "runtime/text/chat/choose_template.h"
#include "runtime/text/chat/prompt_template.h"
#include "runtime/text/utf8.h"
#include "tests/runtime/hostile_tokenizers.h"
#include "tests/support/random_texts.h"

namespace slipstream {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kSeed = 20261125;
constexpr std::size_t kAll = 10000;

const std::vector<HostileTokenizer>& tokenizers() {
    static const std::vector<HostileTokenizer> made = [] {
        std::string skipped;
        auto all = hostile_tokenizers(kSeed, skipped);
        std::cout << fmt::format("{} tokenizers, seed {}; not there:{}\n", all.size(), kSeed,
                                 skipped.empty() ? " none" : skipped);
        return all;
    }();
    return made;
}

template <typename Map>
std::string mapped(std::string_view text, Map map) {
    std::string result;
    for (std::size_t at = 0; at < text.size(); at += next_utf8(text.substr(at)).length)
        map(code_point(text.substr(at)), result);
    return result;
}

std::string in_other_case(std::string_view text, TextRandom& random) {
    const std::size_t how = random.below(3);
    return mapped(text, [&](char32_t point, std::string& out) {
        const bool is_letter = (point >= 'a' && point <= 'z') || (point >= 'A' && point <= 'Z');
        if (is_letter && (how == 0 || random.below(2) == 0)) point ^= 0x20U;
        append_utf8(point, out);
    });
}

/// Characters that NFKC turns into `point`, or that look like it.
char32_t disguised(char32_t point, TextRandom& random) {
    const auto letter = [&](char32_t capital, char32_t small) {
        return point >= 'a' && point <= 'z' ? small + point - 'a' : capital + point - 'A';
    };
    if (point == ' ') return std::u32string_view(U"\u00a0\u2003\u3000\u2581")[random.below(4)];
    if (point == 0x2581) return ' ';
    if (point == 's' && random.below(4) == 0) return 0x17f;  // long s
    if (point == '<' && random.below(3) == 0) return 0xfe64;
    if (point == '>' && random.below(3) == 0) return 0xfe65;
    if ((point | 0x20U) >= 'a' && (point | 0x20U) <= 'z' && random.below(2) == 0)
        return random.below(2) == 0 ? letter(0x1d400, 0x1d41a) : letter(0x24b6, 0x24d0);  // bold, circled
    return point > ' ' && point < 0x7f ? point + 0xfee0 : point;                          // full width
}

std::string in_full_width(std::string_view text, TextRandom& random) {
    const std::size_t share = 1 + random.below(3);
    return mapped(text, [&](char32_t point, std::string& out) {
        append_utf8(random.below(share) == 0 ? disguised(point, random) : point, out);
    });
}

std::string with_characters_between(std::string_view text, TextRandom& random) {
    constexpr std::u32string_view between =
        U"\u200b\u200c\u200d\u2060\ufeff\u00ad\u0301\u0338\u0308\u180e\u0000 \t\u034f\U000e0001";
    const std::size_t share = 1 + random.below(6);
    return mapped(text, [&](char32_t point, std::string& out) {
        append_utf8(point, out);
        if (random.below(share) == 0) append_utf8(between[random.below(between.size())], out);
    });
}

/// What the replacements of a tokenizer turn back ("letters" in hostile_tokenizers.h), and broken bytes.
std::string in_other_letters(std::string_view text, TextRandom& random) {
    std::string result;
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] == '<' && random.below(2) == 0)
            result += '#';
        else if (text.substr(at).starts_with("s>"))
            result += '!', ++at;
        else
            result += text[at];
        if (random.below(40) == 0) result += '\xff';
    }
    return result;
}

std::string hostile_text(const HostileTokenizer& tokenizer, TextRandom& random) {
    std::string text;
    for (std::size_t n = 1 + random.below(3); n > 0; --n) {
        std::string spelling = tokenizer.spellings[random.below(tokenizer.spellings.size())];
        for (std::size_t steps = random.below(3); steps > 0 || spelling.empty(); --steps) switch (random.below(5)) {
                case 0:
                    spelling = in_other_case(spelling, random);
                    break;
                case 1:
                    spelling = in_full_width(spelling, random);
                    break;
                case 2:
                    spelling = with_characters_between(spelling, random);
                    break;
                case 3:  // characters of the spelling twice, so that spellings overlap
                    spelling.insert(0, spelling, 0, next_utf8(spelling).length);
                    break;
                default:
                    break;
            }
        if (random.below(6) == 0) spelling = in_other_letters(spelling, random);
        if (random.below(5) == 0) spelling.erase(0, next_utf8(spelling).length);  // the frame may have it
        constexpr std::string_view around[] = {"",     "",         " ", "\n",           "a",
                                               "the ", "\xc3\xa9", "<", "\xe2\x96\x81", "\xe4\xbd\xa0"};
        text += around[random.below(std::size(around))];
        text += spelling;
        text += around[random.below(std::size(around))];
    }
    return text;
}

/// Templates around the messages: some that write control tokens, some that end within the spelling of one, and those
/// of families and of published models.
std::vector<std::string> frames() {
    std::vector<std::string> sources = {
        "{{ messages[0].content }}",
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>",
        "{% for m in messages %}<s>[INST] {{ m.content }} [INST]</s>{% endfor %}",
        "<{{ messages[0].content }}",
        "<|im_{{ messages[0].content }}",
        "<|{{ messages[0].content }}|>",
        "[{{ messages[0].content }}",
        "{{ messages[0].content }}>",
        "{{ messages[0].content }}</s>",
        "<s>{{ messages[0].content }}",
        "\u2581{{ messages[0].content }}",
        "{{ messages[0].content | lower | trim }}",
        "{% for m in messages %}{{ m.content }}{% endfor %}"};
    for (const char* family : {"chatml", "llama-2", "mistral", "vicuna"})
        if (const TemplateFamily* found = find_template_family(family)) sources.emplace_back(found->source);
    const fs::path published = SLIPSTREAM_SOURCE_DIR "/../shared/data/chat_templates";
    if (!fs::exists(published)) {
        std::cout << fmt::format("{} is not there: no frames of published models\n", published.string());
        return sources;
    }
    std::set<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(published))
        if (entry.path().extension() == ".jinja") files.insert(entry.path());
    for (const fs::path& file : files) sources.push_back(hostile::content_of(file));
    return sources;
}

/// How many control tokens the parts of the prompt that the template wrote make, each part by itself.
std::int64_t control_tokens_of_template(const HostileTokenizer& tokenizer, const MarkedText& prompt) {
    std::int64_t n = 0;
    std::size_t begin = 0;
    const auto add_to = [&](std::size_t end) {
        for (const TokenId id : tokenizer.tokenizer->encode(std::string_view(prompt.bytes).substr(begin, end - begin),
                                                            SpecialTokens::Parse))
            n += tokenizer.is_control[id] ? 1 : 0;
    };
    for (const TextSpan& span : prompt.said) {
        add_to(span.begin);
        begin = span.end;
    }
    add_to(prompt.bytes.size());
    return n;
}

std::vector<Message> conversation(const HostileTokenizer& tokenizer, TextRandom& random) {
    std::vector<Message> messages{{"user", hostile_text(tokenizer, random)}};
    if (random.below(3) == 0) {
        messages.push_back({"assistant", hostile_text(tokenizer, random)});
        messages.push_back({"user", hostile_text(tokenizer, random)});
    }
    return messages;
}

/// So that BOS, which encode_prompt() adds to a prompt without it, cannot come of a message instead.
void begin_with_a_letter(MarkedText& prompt) {
    prompt.bytes.insert(0, "a\n");
    for (TextSpan& span : prompt.said) span = {span.begin + 2, span.end + 2};
}

std::string hex(std::string_view text) {
    std::string result;
    for (const char c : text) result += fmt::format("{:02x}", static_cast<unsigned char>(c));
    return result;
}

TEST(HostileMessages, BecomeNoControlToken) {
    const std::vector<std::string> sources = frames();
    std::size_t n_messages = 0, n_tokenizers = 0;
    int n_failures = 0;
    for (const HostileTokenizer& tokenizer : tokenizers()) {
        std::vector<PromptTemplate> templates;
        for (const std::string& source : sources)
            templates.push_back({ChatTemplate::parse(source, "frame"), {}, *tokenizer.tokenizer});
        TextRandom random(kSeed + n_tokenizers++);
        for (std::size_t i = 0; i < kAll; i += SLIPSTREAM_MESSAGE_STRIDE, ++n_messages) {
            const std::vector<Message> messages = conversation(tokenizer, random);
            MarkedText prompt;
            try {
                prompt = templates[random.below(templates.size())].render(messages);
            } catch (const TemplateError&) {  // it wants other roles, or arguments
                prompt = templates[random.below(13)].render(messages);
            }
            const bool adds_bos = tokenizer.tokenizer->adds_bos();
            if (adds_bos) begin_with_a_letter(prompt);
            std::int64_t n = 0;
            for (const TokenId id : tokenizer.tokenizer->encode_prompt(prompt)) n += tokenizer.is_control[id] ? 1 : 0;
            const std::int64_t most = control_tokens_of_template(tokenizer, prompt) + (adds_bos ? 1 : 0);
            if (n > most && ++n_failures <= 20)
                ADD_FAILURE() << fmt::format("{}: {} control tokens where the template wrote {}: '{}' ({})",
                                             tokenizer.name, n, most, prompt.bytes, hex(prompt.bytes));
        }
    }
    EXPECT_EQ(n_failures, 0);
    EXPECT_GE(n_tokenizers, 40U);
    std::cout << fmt::format("{} conversations over {} tokenizers and {} frames\n", n_messages, n_tokenizers,
                             sources.size());
}

/// Marks change nothing where no control token is spelt: the ids are those of the text without marks, and what a frame
/// writes stays a token.
TEST(HostileMessages, MarksChangeNoIdsOfOrdinaryText) {
    for (const HostileTokenizer& tokenizer : tokenizers()) {
        TextRandom random(kSeed);
        for (std::size_t i = 0; i < kAll; i += SLIPSTREAM_MESSAGE_STRIDE) {
            MarkedText text;
            for (std::size_t n = 1 + random.below(4); n > 0; --n) {
                const std::size_t begin = text.bytes.size();
                for (const char32_t point : random_text(random)) append_utf8(point, text.bytes);
                if (random.below(2) == 0) append_span(text.said, {begin, text.bytes.size()});
            }
            const std::vector<TokenId> plain = tokenizer.tokenizer->encode_prompt(text.bytes, SpecialTokens::Parse);
            const auto is_control = [&](TokenId id) { return tokenizer.is_control[id]; };
            const std::int64_t n_added = tokenizer.tokenizer->adds_bos() ? 1 : 0;
            if (std::ranges::count_if(plain, is_control) > n_added) continue;
            ASSERT_EQ(tokenizer.tokenizer->encode_prompt(text), plain) << tokenizer.name << ": " << hex(text.bytes);
        }
    }
}

TEST(HostileMessages, LeaveTheTokensOfTheTemplateWhole) {
    for (const HostileTokenizer& tokenizer : tokenizers()) {
        TextRandom random(kSeed);
        const PromptTemplate frame(
            ChatTemplate::parse("{{ eos_token }}\n{{ messages[0].content }}\n{{ eos_token }}", "frame"), {},
            *tokenizer.tokenizer);
        if (!tokenizer.tokenizer->eos_id() || tokenizer.name.ends_with("rules")) continue;  // which may ask for a word
        for (std::size_t i = 0; i < kAll; i += 5 * SLIPSTREAM_MESSAGE_STRIDE) {
            const MarkedText prompt = frame.render(std::vector<Message>{{"user", hostile_text(tokenizer, random)}});
            const std::vector<TokenId> ids = tokenizer.tokenizer->encode_prompt(prompt);
            ASSERT_EQ(std::ranges::count(ids, *tokenizer.tokenizer->eos_id()), 2)
                << tokenizer.name << ": " << hex(prompt.bytes);
        }
    }
}

}  // namespace
}  // namespace slipstream
