#include "tools/options/toml_file.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/base/usage_error.h"

namespace slipstream::tools {
namespace {

using testing::ElementsAre;
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
    EXPECT_THAT(entries[1].values, ElementsAre("-5"));
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
    EXPECT_THAT(error_of("a = 1\nb = oops\n"), StartsWith("c.toml:2: "));
    EXPECT_THAT(error_of("a = 1\n= 2\n"), StartsWith("c.toml:2: "));
    EXPECT_THAT(error_of("a = 1\na = 2\n"), StartsWith("c.toml:2: "));
    EXPECT_THAT(error_of("[x]\n[x]\n"), StartsWith("c.toml:2: "));
    for (const char* text :
         {"a\n", "a = \"x\n", "a = 1 b = 2\n", "a = [1, 2", "a = \"\\q\"", "a = \"\\ud800\"", "a = "})
        EXPECT_THAT(error_of(text), StartsWith("c.toml:1: ")) << text;
}

TEST(TomlFile, RefusesWhatOptionsHaveNoUseFor) {
    EXPECT_THAT(error_of("a = 1\nb = 1979-05-27\n"), StartsWith("c.toml:2: a value is"));
    EXPECT_THAT(error_of("a = [[1]]"), StartsWith("c.toml:1: a value is"));
    EXPECT_THAT(error_of("[[x]]\nb = 1\n"), StartsWith("c.toml:1: a value is"));
    EXPECT_THAT(error_of("[x]\na = 1\n[x.y]\nb = 1\n"), StartsWith("c.toml:3: a section is one name"));
}

TEST(TomlFile, ADottedKeyIsOneOfASection) {
    const auto entries = parse_toml("generate.seed = 7\n", "c.toml");
    ASSERT_EQ(entries.size(), 1U);
    EXPECT_EQ(entries[0].section, "generate");
    EXPECT_EQ(entries[0].key, "seed");
}

}  // namespace
}  // namespace slipstream::tools
