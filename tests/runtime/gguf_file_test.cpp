// GgufFile over bytes: every type of metadata, and every way in which a header can lie.
#include "runtime/formats/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tests/support/error_text.h"
#include "tests/support/gguf_writer.h"

namespace slipstream {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::span<const std::byte> as_bytes(const std::string& text) {
    return std::as_bytes(std::span(text));
}

std::string message(const std::string& bytes) {
    return error_text([&] { static_cast<void>(GgufFile::parse(as_bytes(bytes), "x.gguf")); });
}

std::string message(const GgufWriter& writer) {
    return message(writer.bytes());
}

TEST(GgufFile, ReadsEveryTypeOfMetadata) {
    GgufWriter writer;
    writer.set<std::uint8_t>("u8", 255).set<std::int8_t>("i8", -128).set<std::uint16_t>("u16", 65535);
    writer.set<std::int16_t>("i16", -32768).set<std::uint32_t>("u32", 4294967295U).set<std::int32_t>("i32", INT32_MIN);
    writer.set<std::uint64_t>("u64", UINT64_MAX)
        .set<std::int64_t>("i64", INT64_MIN)
        .set("f32", 0.25F)
        .set("f64", -1e300);
    writer.set("yes", true).set("no", false).set("text", "a\nb").set("empty", "");
    writer.set("numbers", gguf_array({gguf_scalar<std::int32_t>(-1), gguf_scalar<std::int32_t>(7)}));
    writer.set("floats", gguf_array({gguf_scalar(0.5F)}))
        .set("flags", gguf_array({gguf_scalar(true), gguf_scalar(false)}));
    writer.set("texts", gguf_array({gguf_string("x"), gguf_string(""), gguf_string("yz")}));
    writer.set("none", gguf_array({}));
    const GgufBytes inner = gguf_array({gguf_string("deep")});
    writer.set("nested", gguf_array({inner, inner}));
    writer.set<std::uint32_t>("last", 42);
    const std::string bytes = writer.bytes();
    const GgufFile file = GgufFile::parse(as_bytes(bytes), "x.gguf");
    EXPECT_EQ(file.version(), 3U);
    EXPECT_EQ(file.entries().size(), 21U);
    EXPECT_EQ(file.integer("u8"), 255);
    EXPECT_EQ(file.integer("i8"), -128);
    EXPECT_EQ(file.integer("u16"), 65535);
    EXPECT_EQ(file.integer("i16"), -32768);
    EXPECT_EQ(file.integer("u32"), 4294967295);
    EXPECT_EQ(file.integer("i32"), INT32_MIN);
    EXPECT_EQ(file.integer("i64"), INT64_MIN);
    EXPECT_EQ(file.find("u64")->integer(), std::nullopt);
    EXPECT_EQ(file.number("u64"), 18446744073709551616.0);
    EXPECT_EQ(file.number("f32"), 0.25);
    EXPECT_EQ(file.number("f64"), -1e300);
    EXPECT_EQ(file.boolean("yes"), true);
    EXPECT_EQ(file.boolean("no"), false);
    EXPECT_EQ(file.string("text"), "a\nb");
    EXPECT_EQ(file.string("empty"), "");
    EXPECT_THAT(*file.find("numbers")->integers(), ElementsAre(-1, 7));
    EXPECT_THAT(*file.find("floats")->numbers(), ElementsAre(0.5));
    EXPECT_THAT(*file.find("flags")->integers(), ElementsAre(1, 0));
    EXPECT_THAT(*file.find("texts")->strings(), ElementsAre("x", "", "yz"));
    EXPECT_TRUE(file.find("none")->integers()->empty());
    EXPECT_EQ(file.find("nested")->to_text(), "[2 arrays]");
    EXPECT_EQ(file.integer("last"), 42);
    EXPECT_EQ(file.find("absent"), nullptr);
    EXPECT_EQ(file.integer("absent"), std::nullopt);
}

TEST(GgufFile, AValueOfAnotherKindIsNamed) {
    GgufWriter writer;
    writer.set("key", "text");
    const std::string bytes = writer.bytes();
    const GgufFile file = GgufFile::parse(as_bytes(bytes), "x.gguf");
    EXPECT_EQ(error_text<FormatError>([&] { static_cast<void>(file.integer("key")); }),
              "x.gguf: metadata key is \"text\", not an integer");
    EXPECT_THAT(error_text<FormatError>([&] { static_cast<void>(file.boolean("key")); }), HasSubstr("not a boolean"));
}

TEST(GgufFile, PrintsValuesOnOneLine) {
    GgufWriter writer;
    std::vector<GgufBytes> many(9, gguf_scalar<std::uint8_t>(3));
    writer.set("many", gguf_array(many))
        .set("text", "a\nb\x1b[2J")
        .set("long", std::string(500, 'x').c_str())
        .set("yes", true);
    const std::string bytes = writer.bytes();
    const GgufFile file = GgufFile::parse(as_bytes(bytes), "x.gguf");
    EXPECT_EQ(file.find("many")->to_text(), "[3, 3, 3, 3, 3, 3, ... 9 in all]");
    EXPECT_EQ(file.find("text")->to_text(), R"("a\x0Ab\x1B[2J")");
    EXPECT_EQ(file.find("long")->to_text(), "\"" + std::string(96, 'x') + "...\"");
    EXPECT_EQ(file.find("yes")->to_text(), "true");
}

TEST(GgufFile, PlacesTensors) {
    GgufWriter writer;
    writer.floats("a", {3}).tensor("b", 8, {2, 64}, std::string(2 * 2 * 34, 'q')).floats("c", {2, 3, 4, 5});
    const std::string bytes = writer.bytes();
    const GgufFile file = GgufFile::parse(as_bytes(bytes), "x.gguf");
    ASSERT_EQ(file.tensors().size(), 3U);
    const GgufTensor& b = file.tensors()[1];
    EXPECT_EQ(b.rank, 2);
    EXPECT_THAT(b.shape, ElementsAre(2, 64, 0, 0));
    EXPECT_EQ(b.type->name, "Q8_0");
    EXPECT_EQ(b.bytes, 136U);
    EXPECT_EQ(b.offset % 32, 0U);
    EXPECT_EQ(bytes.substr(b.offset, b.bytes), std::string(136, 'q'));
    EXPECT_THAT(file.tensors()[2].shape, ElementsAre(2, 3, 4, 5));
}

TEST(GgufFile, ReadsVersion2AndOtherAlignments) {
    GgufWriter writer;
    writer.version = 2;
    writer.alignment = 256;
    writer.set<std::uint32_t>("general.alignment", 256).floats("a", {3}).floats("b", {3});
    const std::string bytes = writer.bytes();
    const GgufFile file = GgufFile::parse(as_bytes(bytes), "x.gguf");
    EXPECT_EQ(file.version(), 2U);
    EXPECT_EQ(file.tensors()[0].offset % 256, 0U);
    EXPECT_EQ(file.tensors()[1].offset, file.tensors()[0].offset + 256);
}

TEST(GgufFile, RefusesByNameWhatItDoesNotRead) {
    EXPECT_EQ(message("GGML\0\0\0\0"), "x.gguf: not a GGUF file: it starts with \"GGML\"");
    EXPECT_THAT(message(std::string()), HasSubstr("truncated"));
    GgufWriter writer;
    writer.version = 1;
    EXPECT_EQ(message(writer), "x.gguf: GGUF version 1; versions 2 and 3 are served");
    writer.version = 4;
    EXPECT_THAT(message(writer), HasSubstr("version 4"));
    writer.version = 0x03000000;
    EXPECT_THAT(message(writer), HasSubstr("big-endian"));
    EXPECT_THROW(static_cast<void>(GgufFile::parse(as_bytes(writer.bytes()), "x")), Unsupported);
}

TEST(GgufFile, NamesTypesThatItDoesNotServe) {
    GgufWriter writer;
    writer.tensor("t", 17, {256}, std::string(74, '\0'));
    const std::string bytes = writer.bytes();
    const GgufFile file = GgufFile::parse(as_bytes(bytes), "x.gguf");
    EXPECT_EQ(file.tensors()[0].type->name, "IQ2_XS");
    EXPECT_FALSE(file.tensors()[0].type->dtype.has_value());
    EXPECT_THAT(message(GgufWriter().tensor("t", 77, {4}, std::string(16, '\0'))),
                HasSubstr("tensor t has type number 77, which is not known (served: F32, F16, BF16"));
}

TEST(GgufFile, RefusesAbsurdCounts) {
    for (const std::uint64_t count : {std::uint64_t{1} << 62, UINT64_MAX, std::uint64_t{1} << 32}) {
        GgufWriter writer;
        writer.set("key", "text").floats("t", {4});
        writer.forged_tensor_count = count;
        EXPECT_THAT(message(writer), HasSubstr("tensors"));
        writer.forged_tensor_count = 0;
        writer.forged_entry_count = count;
        EXPECT_THAT(message(writer), HasSubstr("metadata entries"));
    }
}

TEST(GgufFile, RefusesArraysLongerThanTheFile) {
    for (const std::uint32_t type : {0U, 4U, 8U, 9U, 12U}) {
        GgufBytes array = gguf_array({}, type);
        array.content.replace(4, 8, std::string(7, '\xff') + '\x7f');
        EXPECT_THAT(message(GgufWriter().set("key", array)), HasSubstr("array elements in metadata key"));
    }
}

TEST(GgufFile, RefusesStringsLongerThanTheFile) {
    GgufBytes text = gguf_string("abc");
    text.content[7] = '\x40';
    EXPECT_THAT(message(GgufWriter().set("key", text)), HasSubstr("truncated or damaged"));
}

TEST(GgufFile, BoundsTheDepthOfArrays) {
    GgufBytes value = gguf_scalar<std::uint8_t>(1);
    for (int i = 0; i < 4; ++i) value = gguf_array({value});
    EXPECT_EQ(message(GgufWriter().set("key", value)), "nothing thrown");
    for (int i = 0; i < 1000; ++i) value = gguf_array({value});
    EXPECT_THAT(message(GgufWriter().set("key", value)), HasSubstr("nests arrays deeper than 4"));
}

TEST(GgufFile, RefusesBrokenValues) {
    EXPECT_THAT(message(GgufWriter().set("key", GgufBytes{13, "abcd"})), HasSubstr("value type 13"));
    EXPECT_THAT(message(GgufWriter().set("key", GgufBytes{7, "\x02"})), HasSubstr("neither 0 nor 1"));
    EXPECT_THAT(message(GgufWriter().set("", true)), HasSubstr("key of 0 bytes"));
    // Two keys of one name: forge the second key's last letter.
    std::string bytes = GgufWriter().set("key1", true).set("key2", true).bytes();
    bytes[bytes.find("key2") + 3] = '1';
    EXPECT_THAT(message(bytes), HasSubstr("metadata key key1 occurs twice"));
    for (const std::uint32_t step : {0U, 3U, 48U, 1U << 21})
        EXPECT_THAT(message(GgufWriter().set("general.alignment", step).floats("t", {4})),
                    HasSubstr(fmt::format("general.alignment is {}", step)));
}

TEST(GgufFile, RefusesBrokenTensors) {
    const std::string data(64, '\0');
    EXPECT_THAT(message(GgufWriter().tensor("t", 0, {}, "")), HasSubstr("tensor t has 0 dimensions"));
    EXPECT_THAT(message(GgufWriter().tensor("t", 0, {1, 1, 1, 1, 1}, data)), HasSubstr("tensor t has 5 dimensions"));
    EXPECT_THAT(message(GgufWriter().tensor("t", 0, {0}, "")), HasSubstr("a dimension of 0"));
    EXPECT_THAT(message(GgufWriter().tensor("t", 0, {-1}, data)), HasSubstr("a dimension of 18446744073709551615"));
    EXPECT_THAT(message(GgufWriter().tensor("t", 0, {1LL << 32, 1LL << 32}, data)),
                HasSubstr("which no file can hold"));
    EXPECT_THAT(message(GgufWriter().tensor("t", 0, {1LL << 62}, data)), HasSubstr("larger than the file"));
    EXPECT_THAT(message(GgufWriter().tensor("t", 0, {1LL << 20}, data)), HasSubstr("larger than the file"));
    EXPECT_THAT(message(GgufWriter().tensor("t", 8, {2, 31}, data)), HasSubstr("rows of 31 elements"));
    EXPECT_THAT(message(GgufWriter().tensor("", 0, {4}, data)), HasSubstr("a name of 0 bytes"));
    std::string bytes = GgufWriter().floats("name1", {4}).floats("name2", {4}).bytes();
    bytes[bytes.find("name2") + 4] = '1';
    EXPECT_THAT(message(bytes), HasSubstr("tensor name1 occurs twice"));
    const auto forged = [](std::uint64_t offset) {
        GgufWriter writer;
        writer.floats("a", {16}).floats("b", {16});
        writer.forged_offsets["b"] = offset;
        return message(writer);
    };
    EXPECT_EQ(forged(64), "nothing thrown");
    EXPECT_THAT(forged(32), HasSubstr("tensors a and b overlap"));
    EXPECT_THAT(forged(0), HasSubstr("overlap"));
    EXPECT_THAT(forged(65), HasSubstr("no multiple of the alignment 32"));
    EXPECT_THAT(forged(96), HasSubstr("truncated or damaged"));
    EXPECT_THAT(forged(UINT64_MAX - 31), HasSubstr("beyond the file"));
}

// Every cut of a file is an error, but for a cut in the padding behind the last tensor (there is none here).
TEST(GgufFile, RefusesEveryTruncation) {
    const std::string whole = tiny_llama_gguf().bytes();
    for (std::size_t length = 0; length < whole.size(); ++length) {
        const std::string bytes = whole.substr(0, length);
        EXPECT_NE(message(bytes), "nothing thrown") << "cut at " << length << " of " << whole.size();
    }
}

// Any byte of the header changed: an error or a file whose invariants hold, never a crash (the sanitizers watch).
TEST(GgufFile, SurvivesEveryChangedByte) {
    const GgufWriter writer = tiny_llama_gguf();
    const std::string whole = writer.bytes();
    for (std::size_t at = 0; at < writer.header_bytes(); ++at)
        for (const char change : {'\x00', '\x01', '\x7f', '\x80', '\xff'}) {
            std::string bytes = whole;
            bytes[at] = static_cast<char>(bytes[at] ^ change);
            try {
                const GgufFile file = GgufFile::parse(as_bytes(bytes), "x.gguf");
                for (const GgufTensor& tensor : file.tensors()) ASSERT_LE(tensor.offset + tensor.bytes, bytes.size());
                for (const auto& [key, value] : file.entries()) ASSERT_FALSE(value.to_text().empty());
            } catch (const Error& error) {
                ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
            }
        }
}

}  // namespace
}  // namespace slipstream
