// SafetensorsFile over bytes: what it reads, and every way in which a header can lie.
#include "runtime/formats/safetensors_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "tests/support/error_text.h"
#include "tests/support/safetensors_writer.h"

namespace slipstream {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

SafetensorsFile parse(const std::string& bytes) {
    return SafetensorsFile::parse(std::as_bytes(std::span(bytes)), "x.safetensors");
}

std::string message(const std::string& bytes) {
    return error_text<FormatError>([&] { static_cast<void>(parse(bytes)); });
}

/// A file with one tensor `t`, described by `entry`, over 64 bytes of data.
std::string one(const std::string& entry) {
    return safetensors_bytes("{\"t\":" + entry + "}", std::string(64, '\0'));
}

TEST(SafetensorsFile, ReadsTensorsInFileOrder) {
    SafetensorsWriter writer;
    writer.floats("z", {2, 3}).tensor("a", "BF16", {4}, "01234567").tensor("m", "F16", {}, "ab");
    writer.tensor("mask", "BOOL", {3}, "xyz").tensor("nothing", "F32", {0, 5}, "");
    const std::string bytes = writer.bytes();
    const SafetensorsFile file = parse(bytes);
    ASSERT_EQ(file.tensors.size(), 5U);
    EXPECT_EQ(file.tensors[0].name, "z");
    EXPECT_THAT(file.tensors[0].shape, ElementsAre(2, 3));
    EXPECT_EQ(file.tensors[0].dtype, DType::F32);
    EXPECT_EQ(file.tensors[1].name, "a");
    EXPECT_EQ(file.tensors[1].dtype, DType::BF16);
    EXPECT_EQ(bytes.substr(file.tensors[1].offset, file.tensors[1].bytes), "01234567");
    EXPECT_EQ(file.tensors[2].dtype, DType::F16);
    EXPECT_EQ(file.tensors[3].type_name, "BOOL");
    EXPECT_EQ(file.tensors[3].dtype, std::nullopt);
    EXPECT_THAT(file.metadata, ElementsAre(std::pair<std::string, std::string>("format", "pt")));
}

TEST(SafetensorsFile, KeepsTypesThatItDoesNotServeByName) {
    const SafetensorsFile file = parse(one(R"({"dtype":"F8_E4M3","shape":[64],"data_offsets":[0,64]})"));
    EXPECT_EQ(file.tensors[0].type_name, "F8_E4M3");
    EXPECT_EQ(file.tensors[0].dtype, std::nullopt);
    EXPECT_EQ(parse(one(R"({"dtype":"F4","shape":[128],"data_offsets":[0,64]})")).tensors[0].bytes, 64U);
    EXPECT_EQ(parse(one(R"({"dtype":"Q\n9","shape":[3],"data_offsets":[0,64]})")).tensors[0].type_name, "Q\\x0A9");
}

TEST(SafetensorsFile, RefusesBrokenHeaders) {
    EXPECT_THAT(message(""), HasSubstr("this one has 0 bytes"));
    EXPECT_THAT(message(std::string(8, '\xff')), HasSubstr("the format allows 100000000"));
    EXPECT_THAT(message(std::string("\x40\0\0\0\0\0\0\0{}", 10)), HasSubstr("claims a header of 64 bytes, 2 are left"));
    EXPECT_THAT(message(safetensors_bytes("", "")), HasSubstr("does not begin with '{'"));
    EXPECT_THAT(message(safetensors_bytes(" {}", "")), HasSubstr("does not begin with '{'"));
    EXPECT_THAT(message(safetensors_bytes("{\"a\":", "")), HasSubstr("not JSON at byte"));
    EXPECT_THAT(message(safetensors_bytes("{\"\xff\":1}", "")), HasSubstr("not JSON at byte"));
    EXPECT_THAT(message(safetensors_bytes("{\"__metadata__\":7}", "")), HasSubstr("__metadata__ is not an object"));
    EXPECT_THAT(message(safetensors_bytes("{\"__metadata__\":{\"a\":7}}", "")),
                HasSubstr("__metadata__ a is not a text"));
}

TEST(SafetensorsFile, BoundsDepthAndRefusesNamesThatStandTwice) {
    const std::string deep = "{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}";
    EXPECT_THAT(message(safetensors_bytes(deep, "")), HasSubstr("JSON nested deeper than 32"));
    const std::string entry = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
    EXPECT_THAT(message(safetensors_bytes("{\"t\":" + entry + ",\"t\":" + entry + "}", "0123")),
                HasSubstr("JSON key \"t\" occurs twice"));
}

TEST(SafetensorsFile, RefusesBrokenTensors) {
    EXPECT_EQ(message(one(R"({"dtype":"F32","shape":[4,4],"data_offsets":[0,64]})")), "nothing thrown");
    EXPECT_THAT(message(one("7")), HasSubstr("tensor t is described by no object"));
    EXPECT_THAT(message(one(R"({"shape":[4,4],"data_offsets":[0,64]})")), HasSubstr("tensor t has no dtype"));
    EXPECT_THAT(message(one(R"({"dtype":"F32","data_offsets":[0,64]})")), HasSubstr("tensor t has no shape"));
    EXPECT_THAT(message(one(R"({"dtype":"F32","shape":[4,4]})")), HasSubstr("tensor t has no data_offsets"));
    EXPECT_THAT(message(one(R"({"dtype":7,"shape":[4,4],"data_offsets":[0,64]})")), HasSubstr("dtype is not a text"));
    for (const char* shape : {"[-4,-4]", "[4.0,4]", "[\"4\",4]", "16", "[18446744073709551615]"})
        EXPECT_THAT(message(one(fmt::format(R"({{"dtype":"F32","shape":{},"data_offsets":[0,64]}})", shape))),
                    HasSubstr("tensor t"))
            << shape;
    for (const char* offsets : {"[0]", "[0,64,65]", "[-1,64]", "[0,65]", "[64,0]", "[0,18446744073709551615]", "7"})
        EXPECT_THAT(message(one(fmt::format(R"({{"dtype":"F32","shape":[4,4],"data_offsets":{}}})", offsets))),
                    HasSubstr("tensor t"))
            << offsets;
    EXPECT_THAT(message(one(R"({"dtype":"F32","shape":[4,3],"data_offsets":[0,64]})")),
                HasSubstr("tensor t of 4 x 3 values of F32 has 64 bytes"));
    // A product that wraps to 64 bytes.
    EXPECT_THAT(message(one(R"({"dtype":"F32","shape":[4611686018427387908,4],"data_offsets":[0,64]})")),
                HasSubstr("has 64 bytes of data"));
    EXPECT_THAT(message(one(R"({"dtype":"F6_E2M3","shape":[1],"data_offsets":[0,1]})")), HasSubstr("has 1 bytes"));
}

TEST(SafetensorsFile, RefusesOverlappingTensors) {
    const auto two = [](const char* second) {
        return message(safetensors_bytes(fmt::format(R"({{"a":{{"dtype":"U8","shape":[8],"data_offsets":[0,8]}},)"
                                                     R"("b":{{"dtype":"U8","shape":[8],"data_offsets":{}}}}})",
                                                     second),
                                         std::string(16, '\0')));
    };
    EXPECT_EQ(two("[8,16]"), "nothing thrown");
    EXPECT_THAT(two("[7,15]"), HasSubstr("tensor a and tensor b overlap"));
    EXPECT_THAT(two("[0,8]"), HasSubstr("overlap"));
}

// As the safetensors package does: InvalidOffset, MetadataIncompleteBuffer.
TEST(SafetensorsFile, RefusesBytesThatBelongToNoTensor) {
    const auto at = [](const char* offsets, std::size_t data_bytes) {
        return message(
            safetensors_bytes(fmt::format(R"({{"a":{{"dtype":"U8","shape":[8],"data_offsets":{}}}}})", offsets),
                              std::string(data_bytes, '\0')));
    };
    EXPECT_EQ(at("[0,8]", 8), "nothing thrown");
    EXPECT_THAT(at("[2,10]", 10), HasSubstr("2 bytes between the header and tensor a belong to no tensor"));
    EXPECT_THAT(at("[0,8]", 11), HasSubstr("3 bytes after tensor a belong to no tensor"));
    EXPECT_THAT(message(safetensors_bytes("{}", "x")), HasSubstr("1 bytes after the header"));
    EXPECT_EQ(message(safetensors_bytes("{}", "")), "nothing thrown");
    // A tensor of no bytes may stand anywhere between two.
    EXPECT_EQ(message(safetensors_bytes(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                                        R"("b":{"dtype":"U8","shape":[0],"data_offsets":[8,8]},)"
                                        R"("c":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}})",
                                        std::string(9, '\0'))),
              "nothing thrown");
}

TEST(SafetensorsFile, RefusesEveryTruncation) {
    const std::string whole = tiny_llama_safetensors().bytes();
    for (std::size_t length = 0; length < whole.size(); length += length < 4096 ? 1 : 7)
        EXPECT_NE(message(whole.substr(0, length)), "nothing thrown") << "cut at " << length << " of " << whole.size();
}

TEST(SafetensorsFile, SurvivesEveryChangedByte) {
    const std::string whole = SafetensorsWriter().floats("a", {2, 3}).tensor("b", "I64", {1}, "01234567").bytes();
    for (std::size_t at = 0; at < whole.size() - 32; ++at)
        for (int change = 1; change < 256; ++change) {
            std::string bytes = whole;
            bytes[at] = static_cast<char>(bytes[at] ^ change);
            try {
                for (const SafetensorsTensor& tensor : parse(bytes).tensors)
                    ASSERT_LE(tensor.offset + tensor.bytes, bytes.size());
            } catch (const FormatError& error) {
                ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
            }
        }
}

}  // namespace
}  // namespace slipstream
