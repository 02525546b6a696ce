// The reader of long JSON files: values, escapes, what is passed over, and that whatever is no JSON is refused.
#include "runtime/text/tokenizer/json_stream.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/error_text.h"
#include "tests/support/random_texts.h"

namespace slipstream {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string string_of(const std::string& json) {
    JsonStream stream(json, "test");
    std::string text(stream.string());
    stream.end();
    return text;
}

TEST(JsonStream, WalksObjectsAndArrays) {
    const std::string json = R"( { "a" : [ 1, -20 , 3.5e2 ] , "b":{}, "":[[],[ ]], "c" : null } )";
    JsonStream stream(json, "test");
    stream.enter_object();
    EXPECT_EQ(stream.next_key(), "a");
    stream.enter_array();
    ASSERT_TRUE(stream.next_element());
    EXPECT_EQ(stream.integer(), 1);
    ASSERT_TRUE(stream.next_element());
    EXPECT_EQ(stream.integer(), -20);
    ASSERT_TRUE(stream.next_element());
    EXPECT_EQ(stream.number(), 350);
    EXPECT_FALSE(stream.next_element());
    EXPECT_EQ(stream.next_key(), "b");
    EXPECT_EQ(stream.peek(), JsonStream::Kind::Object);
    stream.enter_object();
    EXPECT_FALSE(stream.next_key().has_value());
    EXPECT_EQ(stream.next_key(), "");
    EXPECT_EQ(stream.raw_value(), "[[],[ ]]");
    EXPECT_EQ(stream.next_key(), "c");
    EXPECT_EQ(stream.peek(), JsonStream::Kind::Null);
    EXPECT_EQ(stream.raw_value(), "null");
    EXPECT_FALSE(stream.next_key().has_value());
    stream.end();
}

TEST(JsonStream, ReadsStrings) {
    EXPECT_EQ(string_of(R"("plain")"), "plain");
    EXPECT_EQ(string_of(R"("a\"\\\/\b\f\n\r\tz")"), "a\"\\/\b\f\n\r\tz");
    EXPECT_EQ(string_of(R"("\u00e9\u4f60\ud83d\ude00é")"), "\u00e9\u4f60\U0001f600\u00e9");
    EXPECT_EQ(string_of("\"\xf0\x9f\x98\x80\x7f\""), "\U0001f600\x7f");
    const std::string with_zero = string_of(R"("\u0000")");
    EXPECT_EQ(with_zero, std::string(1, '\0'));
}

TEST(JsonStream, PassesOverWhatAnotherReaderTakesToo) {
    std::vector<nlohmann::json> values = {
        {{"x", {1, 2.5, "a\"]}"}}, {"y", {{"z", {nullptr, true, false}}}}}, "text", 17, {}};
    for (const std::u32string& text : random_texts(200)) {
        std::string utf8;
        for (const char32_t point : text) {
            if (point < 0x80) utf8 += static_cast<char>(point);
        }
        values.push_back({{utf8, {utf8, {{"k", utf8}}}}});
    }
    for (const auto& value : values) {
        for (const int indent : {-1, 2}) {
            const std::string json = value.dump(indent);
            const std::string padded = " [" + json + " , 1]";
            JsonStream stream(padded, "test");
            stream.enter_array();
            ASSERT_TRUE(stream.next_element());
            EXPECT_EQ(stream.raw_value(), json);
            ASSERT_TRUE(stream.next_element());
            EXPECT_EQ(stream.integer(), 1);
            EXPECT_FALSE(stream.next_element());
            stream.end();
        }
    }
}

TEST(JsonStream, RefusesWhatIsNoJson) {
    const auto refused = [](const std::string& json) {
        return error_text<FormatError>([&] {
            JsonStream stream(json, "some.json");
            stream.raw_value();
            stream.end();
        });
    };
    for (const char* json : {"",
                             "{",
                             "[",
                             "\"a",
                             "[1,]",
                             "{\"a\":1,}",
                             "{\"a\"}",
                             "{a:1}",
                             "{1:1}",
                             "[1 2]",
                             "[1]]",
                             "nul",
                             "tru",
                             "+1",
                             "01",
                             "1.",
                             "-",
                             "1e",
                             ".5",
                             "'a'",
                             "\"\\x\"",
                             "\"\\u12g4\"",
                             "\"\\u12",
                             "\"\n\"",
                             "\"\\ud800\"",
                             "\"\\udc00\"",
                             "\"\\ud800\\u0041\"",
                             "\"\xff\"",
                             "\"\xe2\x96\"",
                             "[1}",
                             "{\"a\":1]",
                             "\"\\",
                             "{\"a\":1 \"b\":2}",
                             "\xef\xbb\xbf{}"})
        EXPECT_THAT(refused(json), HasSubstr("some.json: ")) << json;
    EXPECT_THAT(refused("[1]x"), HasSubstr("behind the end"));
    EXPECT_THAT(refused(std::string(1000, '[')), HasSubstr("too deeply"));
    EXPECT_EQ(refused(std::string(64, '[') + std::string(64, ']')), "nothing thrown");
    const auto number = [](const std::string& json) {
        return error_text<FormatError>([&] { (void)JsonStream(json, "some.json").integer(); });
    };
    EXPECT_THAT(number("1.5"), HasSubstr("no integer"));
    EXPECT_THAT(number("99999999999999999999"), HasSubstr("no integer"));
    EXPECT_THAT(error_text<FormatError>([] { (void)JsonStream("1e999", "some.json").number(); }),
                HasSubstr("out of range"));
    EXPECT_THAT(error_text<FormatError>([] { (void)JsonStream("{}", "some.json").string(); }),
                HasSubstr("'\"' is missing"));
}

}  // namespace
}  // namespace slipstream
