// Answers on terminals of several widths, in scripts with and without blanks: no line is left for the terminal to
// break, nothing is lost, text appears as it is made, and another width counts from then on. Screens are compared with
// those that were recorded (tests/golden/screens/wrapped.*; SLIPSTREAM_RECORD_SCREENS=1 writes them anew).
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/text/utf8.h"
#include "tests/tools/terminal.h"
#include "tools/terminal/file_output.h"

namespace slipstream::tools {
namespace {

constexpr std::string_view kChinese =
    "从前有一个小村庄，村庄旁边有一片很大的森林。森林里住着一只聪明的狐狸，它每天早上都会到河边去喝水。"
    "有一天，它看见一位老人坐在石头上哭泣。“你为什么哭呢？”狐狸问道。老人说：“我的羊不见了（一共三只），"
    "我找了整整一天。”狐狸点点头，说：“别担心，我来帮你找！”";
constexpr std::string_view kJapanese =
    "むかしむかし、あるところに、おじいさんとおばあさんが住んでいました。おじいさんは山へしば刈りに、"
    "おばあさんは川へ洗濯に行きました。「ちょっと待って」と彼は言った。コンピューターとスーパーマーケットは"
    "カタカナの言葉です。ﾊﾝｶｸのｶﾀｶﾅもあります。";
constexpr std::string_view kThai =
    "กาลครั้งหนึ่งนานมาแล้วมีหมู่บ้านเล็กๆอยู่ริมแม่น้ำใหญ่ ชาวบ้านที่นั่นทำนาและจับปลาเป็นอาชีพหลัก"
    "วันหนึ่งมีชายแก่คนหนึ่งเดินทางมาจากแดนไกลเพื่อตามหาลูกชายของเขาที่หายไปเมื่อสิบปีก่อน";
constexpr std::string_view kKorean =
    "옛날 옛적에 작은 마을에 가난한 나무꾼이 살고 있었습니다. 그는 매일 아침 일찍 일어나 숲으로 나무를 하러 갔습니다.";
constexpr std::string_view kMixed =
    "In English, \"你好！世界！\" is a phrase that means \"I'm all right.\" It's a friendly greeting that means "
    "something. Use GPU加速 with C++20の機能 (see "
    "https://example.org/a/very/long/address/that/no/line/of/forty/columns/"
    "could/ever/hold.html) and 你好世界aaaa bbbb.\n\n  - indented 項目一つ\n\ttabbed café naïve\n";
// The formatter cannot break a line of characters of several code points.
// clang-format off
constexpr std::string_view kEmoji =
    "Families 👨‍👩‍👧‍👦👨‍👩‍👧‍👦👨‍👩‍👧‍👦👨‍👩‍👧‍👦👨‍👩‍👧‍👦👨‍👩‍👧‍👦 and "
    "flags "
    "🇩🇪🇫🇷🇯🇵🇹🇭 "
    "and "
    "hearts ❤️❤️❤️ and 👍🏽👍🏽👍🏽 and faces "
    "😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀😀!";
// clang-format on

const std::vector<std::string_view> kTexts{kChinese, kJapanese, kThai, kKorean, kMixed, kEmoji};

constexpr std::string_view kUrl = "https://";

std::filesystem::path golden_path(const std::string& name) {
    return std::filesystem::path(SLIPSTREAM_GOLDEN_DIR) / name;
}

std::string golden_text(const std::string& name) {
    std::ifstream file(golden_path(name));
    return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string_view> characters_of(std::string_view text) {
    std::vector<std::string_view> characters;
    while (!text.empty()) {
        characters.push_back(text.substr(0, next_utf8(text).length));
        text.remove_prefix(characters.back().size());
    }
    return characters;
}

std::string without(std::string text, std::string_view gone) {
    std::erase_if(text, [&](char c) { return gone.find(c) != std::string_view::npos; });
    return text;
}

int count_of(std::string_view text, std::string_view part) {
    int n = 0;
    for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++n;
    return n;
}

// `text` written a character at a time; what the terminal got.
std::string written(std::string_view text, int columns) {
    Terminal terminal(columns);
    {
        TextOutput output(terminal.program_end_name());
        output.wrap_words();
        for (const std::string_view character : characters_of(text)) {
            output.write(character);
            terminal.take();
        }
    }
    terminal.take_all();
    return terminal.bytes();
}

class WrappedText : public testing::TestWithParam<int> {};

TEST_P(WrappedText, LooksAsRecorded) {
    std::string screen;
    for (const std::string_view text : kTexts) {
        for (const std::string& line : screen_lines(written(text, GetParam()), GetParam(), QuoteWidth::One))
            screen += line + "\n";
        screen += "\n";
    }
    const std::string name = fmt::format("screens/wrapped.{}.txt", GetParam());
    if (std::getenv("SLIPSTREAM_RECORD_SCREENS") != nullptr) std::ofstream(golden_path(name)) << screen;
    EXPECT_EQ(screen, golden_text(name));
}

TEST_P(WrappedText, LeavesNoLineToTheTerminalAndLosesNothing) {
    for (const std::string_view text : kTexts) {
        const std::string bytes = written(text, GetParam());
        // One word is longer than 40 and 60 columns: a terminal breaks it, so that it can be copied.
        const bool has_long_word = text.find(kUrl) != std::string_view::npos;
        EXPECT_TRUE(has_long_word || lines_wrapped_by_terminal(bytes, GetParam()) == 0) << bytes;
        EXPECT_EQ(without(bytes, " \r\n\t"), without(std::string(text), " \r\n\t"));
        for (const std::string& line : screen_lines(bytes, GetParam(), QuoteWidth::One))
            for (const char* closing :
                 {"，", "。", "！", "？", "、", "」", "”", "）", "ー", "っ", "ょ", ".", "!", "ะ", "า"})
                EXPECT_FALSE(line.starts_with(closing)) << line;
    }
}

TEST_P(WrappedText, KeepsWordsAndCharactersWhole) {
    std::string all;
    for (const std::string_view text : {kKorean, kMixed, kEmoji})
        for (const std::string& line : screen_lines(written(text, GetParam()), GetParam(), QuoteWidth::One))
            all += line + "\n";
    for (const char* word : {"means", "friendly", "greeting", "something.", "\"I'm", "right.\"", "나무꾼이",
                             "있었습니다.", "갔습니다.", "tabbed", "naïve", "aaaa"})
        EXPECT_THAT(all, testing::HasSubstr(word));
    EXPECT_EQ(count_of(all, "👨‍👩‍👧‍👦"), 6);
}

// What is written so far is shown but for the last character, or the word that may still grow.
TEST_P(WrappedText, AppearsAsItIsMade) {
    for (const std::string_view text : {kChinese, kJapanese, kThai}) {
        Terminal terminal(GetParam());
        TextOutput output(terminal.program_end_name());
        output.wrap_words();
        std::string so_far;
        for (const std::string_view character : characters_of(text)) {
            so_far += character;
            output.write(character);
            terminal.take();
            const std::string shown = without(terminal.bytes(), "\r\n ");
            const std::string made = without(so_far, " ");
            ASSERT_TRUE(made.starts_with(shown));
            // A character with its marks and the punctuation that stays with it.
            EXPECT_LE(characters_of(std::string_view(made).substr(shown.size())).size(), 6U)
                << made.substr(shown.size());
        }
    }
    // A word waits for its end, but never longer than a line.
    Terminal terminal(GetParam());
    TextOutput output(terminal.program_end_name());
    output.wrap_words();
    for (int i = 1; i <= 5 * GetParam(); ++i) {
        output.write("a");
        terminal.take();
        EXPECT_LE(i - static_cast<int>(without(terminal.bytes(), "\r\n").size()), GetParam());
    }
    for (int i = 0; i < 5000; ++i) output.write("\xcc\x81");  // marks without end, which take no cells
    terminal.take();
    EXPECT_LE(5000 - (static_cast<int>(terminal.bytes().size()) - 5 * GetParam()) / 2, 17 * GetParam());
}

INSTANTIATE_TEST_SUITE_P(Columns, WrappedText, testing::Values(40, 60, 80, 100), testing::PrintToStringParamName());

TEST(WrappedText, FollowsAWindowOfAnotherWidth) {
    const std::string words = "one three seven nine eleven thirteen fifteen seventeen ";
    const std::string chinese = "从前有一个小村庄村庄旁边有一片很大的森林";
    for (const std::string& part : {words, chinese}) {
        Terminal terminal(100);
        TextOutput output(terminal.program_end_name());
        output.wrap_words();
        for (int i = 0; i < 12; ++i) output.write(part);
        terminal.take();
        const std::size_t resized_at = terminal.bytes().size();
        terminal.resize(60);
        for (int i = 0; i < 12; ++i) output.write(part);
        output.write_rest();
        terminal.take();
        const std::string& bytes = terminal.bytes();
        // The line under way has been wrapped by the terminal; all that follow are ours.
        const std::size_t line_begin = bytes.rfind('\n', resized_at) + 1;
        const std::size_t line_end = bytes.find('\n', resized_at) + 1;
        ASSERT_NE(line_end, 0U);
        EXPECT_LE(lines_wrapped_by_terminal(bytes.substr(line_begin, line_end - line_begin), 60), 1);
        EXPECT_EQ(lines_wrapped_by_terminal(bytes.substr(line_end), 60), 0);
        EXPECT_GT(screen_lines(bytes.substr(line_end), 60, QuoteWidth::One).size(), 5U);
        terminal.resize(200);
        const std::size_t widened_at = bytes.size();
        for (int i = 0; i < 20; ++i) output.write(part);
        terminal.take();
        const auto lines = screen_lines(terminal.bytes().substr(widened_at), 200, QuoteWidth::One);
        EXPECT_LE(lines.size(), 9U);
    }
}

}  // namespace
}  // namespace slipstream::tools
