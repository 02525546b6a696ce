#include "tools/terminal/bounded_file.h"

#include <string>

#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/error_text.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal(const std::string& path, std::size_t most = 100) {
    return error_text<RequestError>([&] { static_cast<void>(read_text(path, "--prompt-file", most)); });
}

TEST(BoundedFile, WhatIsNoTextIsRefusedByName) {
    const TemporaryFolder folder;
    const std::string file = folder.write("text", std::string(100, 'x')).string();
    EXPECT_EQ(read_text(file, "--prompt-file", 100).size(), 100U);
    EXPECT_THAT(refusal(file, 99), AllOf(HasSubstr("--prompt-file " + file), HasSubstr("more than 99 bytes")));
    EXPECT_THAT(refusal("/dev/zero"), HasSubstr("a device"));
    EXPECT_THAT(refusal(folder.path().string()), HasSubstr("a folder"));
    EXPECT_THROW(static_cast<void>(read_text(folder.path() / "absent", "--config", 9)), IoError);
}

TEST(BoundedFile, TheLimitFollowsFromTheContext) {
    EXPECT_EQ(most_text_bytes(1), std::size_t{1} << 20);
    EXPECT_EQ(most_text_bytes(131072), std::size_t{131072} * 64);
    EXPECT_EQ(most_text_bytes(std::nullopt), std::size_t{1} << 26);
    EXPECT_EQ(most_text_bytes(std::int64_t{1} << 40), std::size_t{1} << 26);
}

}  // namespace
}  // namespace slipstream::tools
