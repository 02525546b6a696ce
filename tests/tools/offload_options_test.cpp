#include "tools/options/offload_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_text.h"
#include "tools/options/settings.h"
#include "tools/terminal/usage_error.h"

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

// Settings refer to the command that they are for.
OffloadOptions options_of(const OptionValues& values, DeviceKind device) {
    static const CommandSpec kCommand{
        .name = "test", .summary = "", .details = "", .example = "", .options = offload_option_specs(), .run = nullptr};
    const EnvironmentReader nothing = [](const std::string&) { return std::nullopt; };
    return offload_options({kCommand, {&kCommand, 1}, values, nothing, {}, ""}, device);
}

// A card's link may be made to seem slower, so that one card stands for another; a CPU's where it has a budget.
TEST(OffloadOptions, ALinkIsThrottledOnEveryKindOfDevice) {
    EXPECT_EQ(options_of({{"link-gib-s", {"23.5"}}}, DeviceKind::Cuda).link_bytes_per_second, 23.5 * 0x1p30);
    EXPECT_EQ(options_of({{"link-gib-s", {"2"}}, {"device-memory", {"20M"}}}, DeviceKind::Cpu).link_bytes_per_second,
              0x1p31);
    EXPECT_THAT(error_text<UsageError>([] {
                    (void)options_of({{"link-gib-s", {"2"}}}, DeviceKind::Cpu);
                }),
                testing::HasSubstr("give --device-memory"));
}

}  // namespace
}  // namespace slipstream::tools
