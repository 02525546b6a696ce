#include "tools/options/settings.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/base/usage_error.h"

namespace slipstream::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<CommandSpec> commands() {
    return {{.name = "bake",
             .summary = "",
             .details = "",
             .example = "",
             .options = {{"heat", "--heat", "N", ""},
                         {"share", "--share", "X", ""},
                         {"topping", "--topping", "TEXT", ""},
                         {"crisp", "--crisp", "", ""}},
             .run = nullptr},
            {.name = "serve",
             .summary = "",
             .details = "",
             .example = "",
             .options = {{"plates", "--plates", "N", ""}},
             .run = nullptr}};
}

// Settings of `bake` from the three sources.
Settings settings_of(const OptionValues& command_line, const std::map<std::string, std::string>& environment = {},
                     std::string_view config = "") {
    const std::vector<CommandSpec> all = commands();
    static std::vector<CommandSpec> kept;  // Settings refers to the specs
    kept = all;
    const EnvironmentReader reader = [environment](const std::string& name) -> std::optional<std::string> {
        const auto found = environment.find(name);
        return found == environment.end() ? std::nullopt : std::optional(found->second);
    };
    return Settings(kept.front(), kept, command_line, reader, parse_toml(config, "c.toml"), "c.toml");
}

std::string error_of(const std::function<void()>& work) {
    try {
        work();
    } catch (const UsageError& error) {
        return error.what();
    }
    return "";
}

TEST(Settings, CommandLineGoesBeforeEnvironmentBeforeFile) {
    const std::string config = "heat = 3\n";
    EXPECT_EQ(settings_of({}, {}, config).integer("heat", {}), 3);
    EXPECT_EQ(settings_of({}, {{"SLIPSTREAM_HEAT", "2"}}, config).integer("heat", {}), 2);
    EXPECT_EQ(settings_of({{"heat", {"1"}}}, {{"SLIPSTREAM_HEAT", "2"}}, config).integer("heat", {}), 1);
    EXPECT_EQ(settings_of({}).integer("heat", {}), std::nullopt);
}

TEST(Settings, ACommandsSectionGoesBeforeTheTopOfTheFile) {
    EXPECT_EQ(settings_of({}, {}, "heat = 3\n[bake]\nheat = 4\n").integer("heat", {}), 4);
    EXPECT_EQ(settings_of({}, {}, "heat = 3\n[serve]\nplates = 4\n").integer("heat", {}), 3);
}

TEST(Settings, AFileMayOnlySetWhatExists) {
    EXPECT_THAT(error_of([] { settings_of({}, {}, "haet = 3\n"); }), HasSubstr("c.toml:1: haet is not an option"));
    EXPECT_THAT(error_of([] { settings_of({}, {}, "haet = 3\n"); }), testing::EndsWith("; heat is one"));
    EXPECT_THAT(error_of([] { settings_of({}, {}, "[bkae]\nheat = 3\n"); }),
                HasSubstr("c.toml:2: [bkae] is not a command"));
    EXPECT_THAT(error_of([] { settings_of({}, {}, "[serve]\nheat = 3\n"); }),
                HasSubstr("heat is not an option of serve"));
    EXPECT_THAT(error_of([] { settings_of({}, {}, "config = \"x\"\n"); }), HasSubstr("config is not an option"));
    EXPECT_THAT(error_of([] { settings_of({}, {}, "topping = []\n"); }), HasSubstr("topping has no value"));
    EXPECT_EQ(error_of([] { settings_of({}, {}, "plates = 3\n"); }), "");  // another command's
}

TEST(Settings, ThousandsOfTokensMayBeWrittenWithK) {
    EXPECT_EQ(settings_of({{"heat", {"4K"}}}).tokens("heat", {1, 1 << 20}), 4096);
    EXPECT_EQ(settings_of({{"heat", {"1024k"}}}).tokens("heat", {1, 1 << 20}), 1 << 20);
    EXPECT_EQ(settings_of({{"heat", {"512"}}}).tokens("heat", {1, 1 << 20}), 512);
    EXPECT_EQ(settings_of({}).tokens("heat", {1, 1 << 20}), std::nullopt);
    for (const char* wrong :
         {"K", "-1K", "0K", "1025K", "4KK", "4.5K", "9223372036854775807K", "99999999999999999999K"})
        EXPECT_THAT(error_of([&] {
                        (void)settings_of({{"heat", {wrong}}}).tokens("heat", {1, 1 << 20});
                    }),
                    HasSubstr("--heat: a whole number from 1 to 1048576 expected"))
            << wrong;
}

TEST(Settings, MalformedValuesNameTheirSource) {
    EXPECT_THAT(error_of([] {
                    (void)settings_of({{"heat", {"x"}}}).integer("heat", {});
                }),
                HasSubstr("--heat: a whole number"));
    EXPECT_THAT(error_of([] {
                    (void)settings_of({}, {{"SLIPSTREAM_HEAT", "1.5"}}).integer("heat", {});
                }),
                HasSubstr("SLIPSTREAM_HEAT: a whole number expected, found '1.5'"));
    EXPECT_THAT(error_of([] {
                    (void)settings_of({}, {}, "\nheat = 9\n").integer("heat", {1, 5});
                }),
                HasSubstr("c.toml:2: heat: a whole number from 1 to 5 expected, found '9'"));
    EXPECT_THAT(error_of([] {
                    (void)settings_of({{"heat", {"99999999999999999999"}}}).integer("heat", {});
                }),
                HasSubstr("--heat"));
    EXPECT_THAT(error_of([] {
                    (void)settings_of({{"heat", {"-1"}}}).unsigned_integer("heat", "");
                }),
                HasSubstr("2^64"));
    EXPECT_THAT(error_of([] { (void)settings_of({{"share", {"nan"}}}).real("share", {}); }), HasSubstr("a number"));
    EXPECT_THAT(error_of([] {
                    (void)settings_of({{"share", {"1.5"}}}).real("share", {0, 1});
                }),
                HasSubstr("from 0 to 1"));
    EXPECT_THAT(error_of([] {
                    (void)settings_of({}, {{"SLIPSTREAM_CRISP", "perhaps"}}).flag("crisp");
                }),
                HasSubstr("SLIPSTREAM_CRISP: true or false"));
}

TEST(Settings, TheLastOfSeveralCountsUnlessAllDo) {
    const Settings settings = settings_of({{"heat", {"1", "2"}}, {"topping", {"a", "", "b"}}});
    EXPECT_EQ(settings.integer("heat", {}), 2);
    EXPECT_THAT(settings.texts("topping"), ElementsAre("a", "", "b"));
    EXPECT_TRUE(settings_of({}, {{"SLIPSTREAM_CRISP", "on"}}).flag("crisp"));
    EXPECT_FALSE(settings_of({{"crisp", {"false"}}}, {{"SLIPSTREAM_CRISP", "on"}}).flag("crisp"));
}

TEST(Settings, OfExclusiveOptionsTheStrongestOriginWins) {
    constexpr std::string_view kBoth[] = {"heat", "share"};
    EXPECT_EQ(settings_of({}).strongest_of(kBoth), "");
    EXPECT_EQ(settings_of({{"share", {"1"}}}, {{"SLIPSTREAM_HEAT", "2"}}).strongest_of(kBoth), "share");
    EXPECT_EQ(settings_of({{"heat", {"1"}}}, {{"SLIPSTREAM_SHARE", "2"}}).strongest_of(kBoth), "heat");
    EXPECT_THAT(error_of([&] {
                    (void)settings_of({{"heat", {"1"}}, {"share", {"1"}}}).strongest_of(kBoth);
                }),
                HasSubstr("--heat and --share exclude each other"));
}

TEST(Settings, SaysWhereAValueComesFrom) {
    EXPECT_EQ(settings_of({}, {{"SLIPSTREAM_HEAT", "2"}}).describe("heat", "2", "built in"),
              "heat = 2 (SLIPSTREAM_HEAT)");
    EXPECT_EQ(settings_of({}).describe("heat", "7", "built in"), "heat = 7 (built in)");
    EXPECT_EQ(environment_name("repeat-penalty"), "SLIPSTREAM_REPEAT_PENALTY");
}

}  // namespace
}  // namespace slipstream::tools
