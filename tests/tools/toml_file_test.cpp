#include "tools/options/toml_file.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/terminal/usage_error.h"

namespace slipstream::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::string error_of(std::string_view text) {
    try {
        static_cast<void>(parse_toml(text, "c.toml"));
    } catch (const UsageError& error) {
        return error.what();
    }
    return "";
}

TEST(TomlFile, ReadsEveryKindOfValue) {
    const auto entries = parse_toml(
        "# options\n"
        "threads = 4   # all of them\r\n"
        "temperature=-0.5e1\n"
        "max-tokens = 1_000\n"
        "\n"
        "echo = true\n"
        "[generate]\n"
        "\"prompt\" = \"a\\tb\\\"\\u00e9\\U0001F600\"\n"
        "output = 'C:\\raw'\n"
        "stop = [ \"one\",  # first\n  'two', ]",
        "c.toml");
    ASSERT_EQ(entries.size(), 7U);
    EXPECT_EQ(entries[0].key, "threads");
    EXPECT_THAT(entries[0].values, ElementsAre("4"));
    EXPECT_EQ(entries[0].line, 2);
    EXPECT_THAT(entries[1].values, ElementsAre("-0.5e1"));
    EXPECT_THAT(entries[2].values, ElementsAre("1000"));
    EXPECT_THAT(entries[3].values, ElementsAre("true"));
    EXPECT_EQ(entries[3].section, "");
    EXPECT_EQ(entries[4].section, "generate");
    EXPECT_THAT(entries[4].values, ElementsAre("a\tb\"\xc3\xa9\xf0\x9f\x98\x80"));
    EXPECT_THAT(entries[5].values, ElementsAre("C:\\raw"));
    EXPECT_THAT(entries[6].values, ElementsAre("one", "two"));
    EXPECT_EQ(entries[6].line, 10);
}

TEST(TomlFile, TakesAnEmptyFile) {
    EXPECT_TRUE(parse_toml(" \n # nothing\n", "c.toml").empty());
}

TEST(TomlFile, NamesTheLineOfAMistake) {
    EXPECT_THAT(error_of("a = 1\nb = oops\n"), StartsWith("c.toml:2: a value is"));
    EXPECT_THAT(error_of("a = 1\n= 2\n"), StartsWith("c.toml:2: the name of an option"));
    EXPECT_THAT(error_of("a\n"), HasSubstr("'=' expected behind a"));
    EXPECT_THAT(error_of("a = \"x\n"), HasSubstr("without its closing quote"));
    EXPECT_THAT(error_of("a = 1 b = 2\n"), HasSubstr("one entry a line"));
    EXPECT_THAT(error_of("a = 1\na = 2\n"), StartsWith("c.toml:2: a stands here twice"));
    EXPECT_THAT(error_of("[x]\n[x]\n"), StartsWith("c.toml:2: the section [x]"));
    EXPECT_THAT(error_of("a = [1, 2"), HasSubstr("expected in an array"));
    EXPECT_THAT(error_of("a.b = 1"), HasSubstr("dotted keys"));
    EXPECT_THAT(error_of("[[x]]"), HasSubstr("arrays of tables"));
    EXPECT_THAT(error_of("a = \"\"\"x\"\"\""), HasSubstr("several lines"));
    EXPECT_THAT(error_of("a = \"\\q\""), HasSubstr("no escape"));
    EXPECT_THAT(error_of("a = \"\\ud800\""), HasSubstr("no character"));
    EXPECT_THAT(error_of("a = "), HasSubstr("a value is"));
}

}  // namespace
}  // namespace slipstream::tools
