// Reports on a terminal: lines that are folded, tables that go on below.
#include "tools/terminal/folded_text.h"

#include <gtest/gtest.h>

#include "tools/terminal/labelled_lines.h"
#include "tools/terminal/text_table.h"

namespace slipstream::tools {
namespace {

TEST(FoldedText, BreaksLongLinesAtBlanks) {
    EXPECT_EQ(folded("one two three\nfour\n", 0), "one two three\nfour\n");
    EXPECT_EQ(folded("one two three\nfour\n", 9), "one two\n  three\nfour\n");
    EXPECT_EQ(folded("one two three", 7, 0), "one two\nthree");
    EXPECT_EQ(folded("  1.5x  more  of it all", 14, 4), "  1.5x  more\n      of it\n      all");
    EXPECT_EQ(folded("\xc3\xa9\xc3\xa9 \xc3\xa9\xc3\xa9", 5), "\xc3\xa9\xc3\xa9 \xc3\xa9\xc3\xa9")
        << "cells, not bytes";
    EXPECT_EQ(folded("一二三 四五六", 8), "一二三\n  四五六") << "wide characters";
    // A word is never cut, and blanks at an end are no word.
    EXPECT_EQ(folded("a /long/path/of/a/file b", 8), "a\n  /long/path/of/a/file\n  b");
    EXPECT_EQ(folded("/long/path  ", 4), "/long/path  ");
    EXPECT_EQ(folded("", 4), "");
    EXPECT_EQ(folded("\n\n", 4), "\n\n");
}

TEST(FoldedText, ValuesStandUnderThemselves) {
    LabelledLines wide;
    wide.add("model", "a model of many words");
    EXPECT_EQ(wide.text(), "model            a model of many words\n");
    LabelledLines narrow(30);
    narrow.add("model", "a model of many words");
    EXPECT_EQ(narrow.text(), "model            a model of\n               many words\n");
}

TEST(FoldedText, TablesAlignWideCharacters) {
    TextTable table({"name", "tokens"});
    table.add({"模型", "512"});
    table.add({"café-à-la", "9"});
    EXPECT_EQ(table.text(), "     name  tokens\n     模型     512\ncafé-à-la       9\n");
}

TEST(FoldedText, TablesGoOnBelow) {
    TextTable table({"phase", "tokens", "seconds", "GB/s"});
    table.add({"prefill", "512", "0.25", "9.5"});
    const std::string whole = "  phase  tokens  seconds  GB/s\nprefill     512     0.25   9.5\n";
    EXPECT_EQ(table.text(), whole);
    EXPECT_EQ(table.text(30), whole);
    EXPECT_EQ(table.text(29), "  phase  tokens  seconds\nprefill     512     0.25\n\n  phase  GB/s\nprefill   9.5\n");
    EXPECT_EQ(
        table.text(1),
        "  phase  tokens\nprefill     512\n\n  phase  seconds\nprefill     0.25\n\n  phase  GB/s\nprefill   9.5\n")
        << "a column at least";
}

}  // namespace
}  // namespace slipstream::tools
