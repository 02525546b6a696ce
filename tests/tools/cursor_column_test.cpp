#include "tools/terminal/cursor_column.h"

#include <optional>

#include <gtest/gtest.h>

namespace slipstream::tools {
namespace {

std::optional<int> column_after(std::string_view text, int columns = 10) {
    CursorColumn cursor;
    cursor.advance(text, columns);
    return cursor.column();
}

TEST(CursorColumn, CountsAsciiAndWraps) {
    EXPECT_EQ(column_after(""), 0);
    EXPECT_EQ(column_after("abc"), 3);
    EXPECT_EQ(column_after("0123456789"), 10);  // full: the cursor waits on the 9
    EXPECT_EQ(column_after("0123456789a"), 1);
    EXPECT_EQ(column_after("0123456789\n"), 0);
    EXPECT_EQ(column_after("0123456789\nab"), 2);
    EXPECT_EQ(column_after("0123456789012345678901"), 2);
}

TEST(CursorColumn, IsUnknownBehindWhatTerminalsShowDifferently) {
    for (const char* text : {"\xe2\x80\x9cyes", "caf\xc3\xa9", "\xe6\xbc\xa2", "e\xcc\x81", "\xf0\x9f\x90\xba", "\xff",
                             "a\tb", "long text\rab"}) {
        EXPECT_EQ(column_after(text), std::nullopt) << text;
        EXPECT_EQ(column_after(std::string(text) + "\nab"), 2) << text;
    }
}

TEST(CursorColumn, IsLostBehindOtherControlCharacters) {
    for (const char* text : {"\x1b[5A", "ab\b", "\x0b", "\x7f"})
        EXPECT_EQ(column_after(std::string(text) + "\nab"), std::nullopt);
}

TEST(CursorColumn, PiecesMayBeCutAnywhere) {
    CursorColumn cursor;
    for (const char* piece : {"01234", "56789", "a", "\xe2", "\x80", "\x9c", "b"}) cursor.advance(piece, 10);
    EXPECT_EQ(cursor.column(), std::nullopt);
    cursor.advance("\n", 10);
    cursor.advance("b", 10);
    EXPECT_EQ(cursor.column(), 1);
}

TEST(CursorColumn, AnotherWidthMayHaveMovedTheLine) {
    CursorColumn cursor;
    cursor.advance("0123456789ab", 10);
    cursor.advance("", 20);
    EXPECT_EQ(cursor.column(), std::nullopt);
    cursor.advance("\n0123456789ab", 20);
    EXPECT_EQ(cursor.column(), 12);
}

}  // namespace
}  // namespace slipstream::tools
