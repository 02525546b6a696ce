#include "tools/options/offload_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_text.h"
#include "tools/base/usage_error.h"
#include "tools/engine/engine.h"
#include "tools/options/settings.h"

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
OffloadOptions options_of(const OptionValues& values, const std::vector<DeviceKind>& devices) {
    static const CommandSpec kCommand{
        .name = "test", .summary = "", .details = "", .example = "", .options = offload_option_specs(), .run = nullptr};
    const EnvironmentReader nothing = [](const std::string&) { return std::nullopt; };
    return offload_options({kCommand, {&kCommand, 1}, values, nothing, {}, ""}, devices);
}

std::string refused(const OptionValues& values, const std::vector<DeviceKind>& devices) {
    return error_text<UsageError>([&] { static_cast<void>(options_of(values, devices)); });
}

constexpr DeviceKind kCpu = DeviceKind::Cpu;
constexpr DeviceKind kCard = DeviceKind::Cuda;
constexpr std::size_t kMiB = std::size_t{1} << 20;

// A card's link may be made to seem slower, so that one card stands for another; a CPU's where it has a budget.
TEST(OffloadOptions, ALinkIsThrottledOnEveryKindOfDevice) {
    EXPECT_EQ(options_of({{"link-gib-s", {"23.5"}}}, {kCard}).limits(0).link_bytes_per_second, 23.5 * 0x1p30);
    EXPECT_EQ(options_of({{"link-gib-s", {"2"}}, {"device-memory", {"20M"}}}, {kCpu}).limits(0).link_bytes_per_second,
              0x1p31);
    EXPECT_THAT(refused({{"link-gib-s", {"2"}}}, {kCpu}), testing::HasSubstr("give --device-memory"));
}

TEST(OffloadOptions, EachDeviceHasItsOwn) {
    const OffloadOptions options =
        options_of({{"device-memory", {"700M,none,20M"}}, {"link-gib-s", {"1,none,2"}}}, {kCpu, kCpu, kCpu});
    EXPECT_EQ(options.limits(0).memory_bytes, 700 * kMiB);
    EXPECT_EQ(options.limits(1).memory_bytes, std::nullopt);
    EXPECT_EQ(options.limits(2).memory_bytes, 20 * kMiB);
    EXPECT_EQ(options.limits(0).link_bytes_per_second, 0x1p30);
    EXPECT_EQ(options.limits(1).link_bytes_per_second, 0.0);
    EXPECT_EQ(options.limits(2).link_bytes_per_second, 0x1p31);
}

TEST(OffloadOptions, OneValueIsForAllThatStream) {
    const OffloadOptions cpus = options_of({{"device-memory", {"20M"}}, {"link-gib-s", {"1"}}}, {kCpu, kCpu});
    for (const std::size_t device : {0, 1}) {
        EXPECT_EQ(cpus.limits(device).memory_bytes, 20 * kMiB);
        EXPECT_EQ(cpus.limits(device).link_bytes_per_second, 0x1p30);
    }
    // Beside a card a CPU computes in place.
    const OffloadOptions beside = options_of({{"device-memory", {"20M"}}, {"link-gib-s", {"1"}}}, {kCard, kCpu});
    EXPECT_EQ(beside.limits(0).memory_bytes, 20 * kMiB);
    EXPECT_EQ(beside.limits(1).memory_bytes, std::nullopt);
    EXPECT_EQ(beside.limits(1).link_bytes_per_second, 0.0);
}

TEST(OffloadOptions, ExpertsOnTheCpuAreForCpuDevices) {
    using testing::HasSubstr;
    const auto how = [](const std::string& value, const std::vector<DeviceKind>& devices) {
        return options_of({{"experts", {value}}, {"device-memory", {"20M"}}}, devices).experts;
    };
    EXPECT_EQ(options_of({{"device-memory", {"20M"}}}, {kCpu}).experts, std::nullopt);
    EXPECT_EQ(how("auto", {kCpu, kCpu}), std::nullopt);
    EXPECT_EQ(how("copy", {kCpu}), ExpertMisses::Copy);
    EXPECT_EQ(how("cpu", {kCpu}), ExpertMisses::Cpu);
    EXPECT_EQ(how("auto", {kCard}), std::nullopt);
    EXPECT_EQ(how("copy", {kCard, kCpu}), ExpertMisses::Copy);
    for (const std::vector<DeviceKind>& devices : {std::vector{kCard}, {kCard, kCpu}})
        EXPECT_THAT(error_text<RequestError>([&] { static_cast<void>(how("cpu", devices)); }),
                    HasSubstr("--experts: experts that the CPU computes have other bits than those of a GPU"));
    EXPECT_THAT(refused({{"experts", {"gpu"}}, {"device-memory", {"20M"}}}, {kCpu}), HasSubstr("found 'gpu'"));
    EXPECT_THAT(refused({{"experts", {"copy"}}}, {kCpu}), HasSubstr("has an effect only if something streams"));
}

TEST(OffloadOptions, ListsThatDoNotFitTheDevicesAreRefused) {
    using testing::HasSubstr;
    EXPECT_THAT(refused({{"device-memory", {"1G,1G"}}}, {kCpu, kCpu, kCpu}), HasSubstr("2 values for 3 devices"));
    EXPECT_THAT(refused({{"device-memory", {"1G,1G"}}}, {kCpu}), HasSubstr("2 values for 1 device;"));
    EXPECT_THAT(refused({{"device-memory", {"1G,,"}}}, {kCpu, kCpu, kCpu}), HasSubstr("found ''"));
    EXPECT_THAT(refused({{"device-memory", {"none"}}}, {kCard}), HasSubstr("'none' is for a CPU device"));
    EXPECT_THAT(refused({{"device-memory", {"1G,none"}}, {"link-gib-s", {"1,1"}}}, {kCpu, kCpu}),
                HasSubstr("has an effect only if something streams"));
    EXPECT_THAT(refused({{"device-memory", {"none,none"}}, {"ring", {"1M"}}}, {kCpu, kCpu}),
                HasSubstr("has an effect only if something streams"));
    EXPECT_THAT(refused({{"device-memory", {"1G"}}, {"link-gib-s", {"0"}}}, {kCpu}), HasSubstr("found '0'"));
    EXPECT_THAT(refused({{"shares", {"2,1,1"}}}, {kCpu, kCpu}), HasSubstr("3 values for 2 devices"));
    EXPECT_THAT(refused({{"shares", {"2"}}}, {kCpu, kCpu}), HasSubstr("1 value for 2 devices"));
    EXPECT_THAT(refused({{"shares", {"2,0"}}}, {kCpu, kCpu}), HasSubstr("found '0'"));
    EXPECT_THAT(refused({{"shares", {"1e308,1e308"}}}, {kCpu, kCpu}), HasSubstr("found '1e308'"));
    EXPECT_THAT(refused({{"shares", {"2,1"}}}, {kCpu}), HasSubstr("requires several devices"));
    EXPECT_THAT(refused({{"split", {"layers"}}}, {kCpu}), HasSubstr("requires several devices"));
    EXPECT_THAT(refused({{"split", {"rows"}}}, {kCpu, kCpu}), HasSubstr("found 'rows'"));
    EXPECT_THAT(error_text<RequestError>([] {
                    static_cast<void>(options_of({{"split", {"tensor"}}}, {kCard, kCpu}));
                }),
                HasSubstr("tensor is served over devices of one kind"));
    EXPECT_EQ(options_of({{"split", {"tensor"}}}, {kCpu, kCpu}).split, SplitKind::Tensor);
    EXPECT_EQ(options_of({{"split", {"layers"}}}, {kCard, kCpu}).split, SplitKind::Layers);
    EXPECT_EQ(options_of({}, {kCpu, kCpu}).split, std::nullopt);
}

}  // namespace
}  // namespace slipstream::tools
