#include "tools/options/offload_options.h"

#include <gtest/gtest.h>

namespace slipstream::tools {
namespace {

TEST(OffloadOptions, SizesAreReadAsUsersWriteThem) {
    EXPECT_EQ(parse_size("4096"), 4096U);
    EXPECT_EQ(parse_size("8G"), std::size_t{8} << 30);
    EXPECT_EQ(parse_size("8GB"), std::size_t{8} << 30);
    EXPECT_EQ(parse_size("8GiB"), std::size_t{8} << 30);
    EXPECT_EQ(parse_size("8g"), std::size_t{8} << 30);
    EXPECT_EQ(parse_size("1.5k"), 1536U);
    EXPECT_EQ(parse_size("300M"), std::size_t{300} << 20);
    EXPECT_EQ(parse_size("2T"), std::size_t{2} << 40);
    EXPECT_EQ(parse_size("17B"), 17U);
    EXPECT_EQ(parse_size("0"), 0U);
}

TEST(OffloadOptions, OtherTextIsNoSize) {
    for (const char* text : {"", "G", "-1G", "1 G", "1GG", "1Gi B", "8X", "1e9", "nan", "inf", "1.2.3", "0x10", " 1",
                             "99999999999T", "1iB"})
        EXPECT_FALSE(parse_size(text)) << text;
}

}  // namespace
}  // namespace slipstream::tools
