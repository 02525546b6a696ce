// Options of `plan` about memory and links, and every way in which they are malformed.
#include "tools/plan/plan_options.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/error_text.h"
#include "tools/base/usage_error.h"
#include "tools/options/compute_options.h"
#include "tools/options/offload_options.h"

namespace slipstream::tools {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::size_t kGiB = std::size_t{1} << 30;

// Settings refer to the command that they are for.
const CommandSpec& test_command() {
    static const CommandSpec kCommand = [] {
        std::vector<OptionSpec> options = offload_option_specs();
        for (const OptionSpec& option : device_options()) options.push_back(option);
        options.push_back({"tokens-per-pass", "--tokens-per-pass", "LIST", ""});
        return CommandSpec{
            .name = "test", .summary = "", .details = "", .example = "", .options = options, .run = nullptr};
    }();
    return kCommand;
}

Settings settings_of(const OptionValues& values) {
    const EnvironmentReader nothing = [](const std::string&) { return std::nullopt; };
    return {test_command(), {&test_command(), 1}, values, nothing, {}, ""};
}

PlacementSettings placement(const OptionValues& values, int n_devices = 1) {
    return placement_settings(settings_of(values), n_devices);
}

std::string refused(const OptionValues& values, int n_devices = 1) {
    return error_text<UsageError>([&] { static_cast<void>(placement(values, n_devices)); });
}

TEST(PlacementOptions, AreEmptyWhereNobodySays) {
    const PlacementSettings none = placement({});
    EXPECT_THAT(none.device_bytes, IsEmpty());
    EXPECT_THAT(none.link_bytes_per_second, IsEmpty());
    EXPECT_FALSE(none.host_bytes || none.ring_bytes || none.expect_tokens);
}

TEST(PlacementOptions, AreRead) {
    const PlacementSettings one = placement({{"device-memory", {"1.5GiB"}},
                                             {"host-memory", {"64G"}},
                                             {"link-gib-s", {"23.65"}},
                                             {"ring", {"300M"}},
                                             {"expect-tokens", {"64"}}});
    EXPECT_THAT(one.device_bytes, ElementsAre(kGiB + kGiB / 2));
    EXPECT_EQ(one.host_bytes, 64 * kGiB);
    EXPECT_THAT(one.link_bytes_per_second, ElementsAre(testing::DoubleNear(23.65 * 1073741824.0, 1.0)));
    EXPECT_EQ(one.ring_bytes, std::size_t{300} << 20);
    EXPECT_EQ(one.expect_tokens, 64);
}

TEST(PlacementOptions, OneValueServesAllDevicesOrThereIsOneForEach) {
    EXPECT_THAT(placement({{"device-memory", {"8G"}}}, 2).device_bytes, ElementsAre(8 * kGiB));
    EXPECT_THAT(placement({{"device-memory", {"8G,4G"}}}, 2).device_bytes, ElementsAre(8 * kGiB, 4 * kGiB));
    EXPECT_THAT(refused({{"device-memory", {"8G,4G"}}}), HasSubstr("--device-memory: 2 values for 1 device;"));
    EXPECT_THAT(refused({{"link-gib-s", {"1,2,3"}}}, 2), HasSubstr("--link-gib-s: 3 values for 2 devices"));
    EXPECT_THAT(refused({{"link-gib-s", {"none,none,none"}}}, 2), HasSubstr("--link-gib-s: 3 values for 2 devices"));
    EXPECT_THAT(refused({{"ring", {"1G,2G"}}}, 2), HasSubstr("--ring"));
}

// As every command takes them.
TEST(PlacementOptions, ALinkMayBeAsItIs) {
    EXPECT_THAT(placement({{"link-gib-s", {"0.5,none"}}}, 2).link_bytes_per_second,
                ElementsAre(0.5 * 1073741824.0, std::numeric_limits<double>::infinity()));
    EXPECT_THAT(placement({{"link-gib-s", {"none"}}}, 2).link_bytes_per_second, IsEmpty());
    EXPECT_EQ(placement({{"expect-tokens", {"1048576"}}}).expect_tokens, 1 << 20);
    EXPECT_THAT(refused({{"expect-tokens", {"1048577"}}}), HasSubstr("--expect-tokens"));
}

TEST(PlacementOptions, MalformedValuesAreNamed) {
    EXPECT_THAT(refused({{"device-memory", {"much"}}}), AllOf(HasSubstr("--device-memory"), HasSubstr("'much'")));
    EXPECT_THAT(refused({{"device-memory", {"0"}}}), HasSubstr("'0'"));
    EXPECT_THAT(refused({{"device-memory", {"8G,"}}}, 2), HasSubstr("''"));
    EXPECT_THAT(refused({{"host-memory", {"-1G"}}}), HasSubstr("--host-memory"));
    EXPECT_THAT(refused({{"link-gib-s", {"0"}}}), HasSubstr("GiB a second from 0.001 to 1000000 expected"));
    EXPECT_THAT(refused({{"link-gib-s", {"2GiB"}}}), HasSubstr("'2GiB'"));
    EXPECT_THAT(refused({{"link-gib-s", {"nan"}}}), HasSubstr("'nan'"));
    EXPECT_THAT(refused({{"expect-tokens", {"0"}}}), HasSubstr("--expect-tokens"));
}

TEST(PlannedDevices, AreCounted) {
    EXPECT_EQ(planned_devices(settings_of({})), 1);
    EXPECT_EQ(planned_devices(settings_of({{"devices", {"auto"}}})), 1);
    EXPECT_EQ(planned_devices(settings_of({{"devices", {"cpu"}}})), 1);
    EXPECT_EQ(planned_devices(settings_of({{"devices", {"cuda:0"}}})), 1);
    EXPECT_THAT(error_text<UsageError>([] {
                    static_cast<void>(planned_devices(settings_of({{"devices", {"gpu"}}})));
                }),
                HasSubstr("'gpu'"));
    EXPECT_THAT(error_text<UsageError>([] {
                    static_cast<void>(planned_devices(settings_of({{"devices", {"cpu,"}}})));
                }),
                HasSubstr("''"));
    EXPECT_THAT(error_text<RequestError>([] {
                    static_cast<void>(planned_devices(settings_of({{"devices", {"cuda:0,cpu"}}})));
                }),
                AllOf(HasSubstr("several devices"), HasSubstr("--profile")));
    EXPECT_EQ(planned_devices(settings_of({{"devices", {"cpu,cpu"}}})), 2);
}

TEST(NumberList, IsOfNumbersAboveZero) {
    EXPECT_THAT(number_list(settings_of({{"tokens-per-pass", {"1,2.5,32"}}}), "tokens-per-pass", {1.0, 64.0}),
                ElementsAre(1.0, 2.5, 32.0));
    EXPECT_THAT(number_list(settings_of({}), "tokens-per-pass", {1.0, 64.0}), IsEmpty());
    for (const char* list : {"", "1,,2", "0", "-1", "x", "1 2", "inf"})
        EXPECT_THAT(error_text<UsageError>([&] {
                        static_cast<void>(
                            number_list(settings_of({{"tokens-per-pass", {list}}}), "tokens-per-pass", {1.0, 64.0}));
                    }),
                    HasSubstr("numbers from 1 to 64 expected"))
            << list;
}

}  // namespace
}  // namespace slipstream::tools
