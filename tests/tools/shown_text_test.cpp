#include "tools/terminal/shown_text.h"

#include <string>

#include <gtest/gtest.h>

namespace slipstream::tools {
namespace {

std::string shown_by(ShownText& all, const std::string& text) {
    std::string result = all.take(text);
    return result + all.rest();
}

std::string shown(const std::string& text) {
    ShownText all;
    return shown_by(all, text);
}

TEST(ShownText, ControlCharactersAreEscapedWhateverTheyAre) {
    EXPECT_EQ(shown("a\x1b[2J\x1b]0;title\x07 b"), "a\\x1B[2J\\x1B]0;title\\x07 b");
    EXPECT_EQ(shown("one\ttwo\nthree\r\x7f"), "one\ttwo\nthree\\x0D\\x7F");
    EXPECT_EQ(shown("\xc2\x9b"
                    "31m \xc2\xa0"),
              "\\xC2\\x9B"
              "31m \xc2\xa0")
        << "C1, and what only looks like it";
    EXPECT_EQ(shown("\xff\xc3("), "\\xFF\\xC3(") << "no UTF-8";
    EXPECT_EQ(shown("caf\xc3\xa9 \xf0\x9f\x98\x80"), "caf\xc3\xa9 \xf0\x9f\x98\x80");
    EXPECT_EQ(shown(std::string("\0", 1)), "\\x00");
}

TEST(ShownText, HalfACharacterWaits) {
    const std::string text = "a\xf0\x9f\x98\x80\xc2\x9b\xe2\x82\xac.";
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        ShownText pieces;
        std::string out = pieces.take(text.substr(0, cut));
        for (const char* half : {"\xf0", "\xf0\x9f", "\xe2\x82"}) EXPECT_FALSE(out.ends_with(half)) << cut;
        out += pieces.take(text.substr(cut));
        EXPECT_EQ(out, shown(text)) << cut;
    }
    EXPECT_EQ(shown("a\xf0\x9f"), "a\\xF0\\x9F") << "of a text that ends there";
}

TEST(ShownText, WordsGoToTheNextLineWhole) {
    ShownText words;
    words.wrap_at(10);
    std::string out;
    for (const char c : std::string("one two three  four\n\n  indented caf\xc3\xa9 longerthanaline x"))
        out += words.take(std::string(1, c));
    out += words.rest();
    EXPECT_EQ(out, "one two\nthree\nfour\n\n  indented\ncaf\xc3\xa9\nlongerthanaline x");
    ShownText exact;
    exact.wrap_at(10);
    EXPECT_EQ(shown_by(exact, "four words and more "), "four words\nand more ") << "a line that is just full";
    EXPECT_EQ(exact.take("held"), "") << "a word may still grow";
}

}  // namespace
}  // namespace slipstream::tools
