// views through the program: that a view of everything chooses what the target does, and a small one does not.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json views_of(const std::string& file, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"views", "--threads", "1", "--json", "-q", "--file", file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    const json document = json::parse(result.out, nullptr, false);
    if (document.is_discarded() || !document.contains("runs")) {
        ADD_FAILURE() << result.out;
        return json::object();
    }
    return document["runs"][0];
}

std::string long_text() {
    std::string text;
    for (int i = 0; i < 60; ++i) text += fmt::format("The miller had {} sons and {} mills. ", i % 7, i);
    return text;
}

TEST(Views, AViewOfTheWholeTextChoosesWhatTheTargetDoes) {
    const TemporaryFolder folder;
    const std::string file = folder.write("t.txt", long_text()).string();
    for (const char* temperature : {"0", "0.8"}) {
        // More than the text: nothing is left out. The depth is no whole number of groups, the last pass is short.
        const json run = views_of(file, {"--views", "mass,mean,window,heavy,oracle", "--view-budgets", "1024",
                                         "--depth", "301", "--max-tokens", "150", "--temperature", temperature});
        EXPECT_EQ(run["mode"], "views");
        EXPECT_EQ(run["depth"], 301);
        EXPECT_EQ(run["pass_tokens"], 64);
        ASSERT_EQ(run["views"].size(), 5U);
        const char* names[] = {"mass", "mean", "window", "heavy", "oracle"};
        for (std::size_t i = 0; i < 5; ++i) {
            const json& view = run["views"][i];
            EXPECT_EQ(view["view"], names[i]);
            EXPECT_EQ(view["budget"], 1024);
            EXPECT_EQ(view["positions"], 150);
            EXPECT_EQ(view["equal"], 150) << names[i];
            EXPECT_EQ(view["acceptance"], 1.0) << names[i];
            EXPECT_EQ(view["standard_error"], 0.0);
            EXPECT_GT(view["seconds"], 0.0);
            EXPECT_GT(view["target_seconds"], 0.0);
        }
    }
}

TEST(Views, ASmallViewChoosesOtherwiseNowAndThen) {
    const TemporaryFolder folder;
    const std::string file = folder.write("t.txt", long_text()).string();
    for (const char* rebuild : {"0", "16", "100"}) {
        const json run = views_of(
            file, {"--views", "mass,window", "--view-budgets", "16,32", "--view-recent", "8,50%", "--view-sinks", "0",
                   "--view-rows", "1,4", "--depth", "400", "--max-tokens", "200", "--view-rebuild", rebuild});
        EXPECT_EQ(run["pass_tokens"], std::string(rebuild) == "16" ? 16 : 64);
        ASSERT_EQ(run["views"].size(), 2U * 2 * 2 + 2);
        EXPECT_EQ(run["views"][7]["recent"], 16);
        EXPECT_EQ(run["views"][7]["rows"], 4);
        for (const json& view : run["views"]) {
            EXPECT_EQ(view["positions"], 200) << "it stands from the second pass on, whenever it is rebuilt";
            EXPECT_LT(view["equal"], 200);
            EXPECT_GT(view["equal"], 50);
        }
    }
}

TEST(Views, KeepMoreTokensInFourBits) {
    const TemporaryFolder folder;
    const std::string file = folder.write("t.txt", long_text()).string();
    const json run =
        views_of(file, {"--views", "mass,window", "--view-types", "f16,q4", "--view-budgets", "264,1024",
                        "--view-sinks", "8", "--view-recent", "32", "--depth", "450", "--max-tokens", "200"});
    ASSERT_EQ(run["views"].size(), 8U);
    for (std::size_t i = 0; i < 8; ++i) {
        const json& view = run["views"][i];
        EXPECT_EQ(view["type"], i % 4 < 2 ? "f16" : "q4");
        EXPECT_EQ(view["positions"], 200);
        EXPECT_GT(view["equal"], 100);
    }
    EXPECT_LT(2.0 * run["views"][2]["bytes"].get<double>(), run["views"][0]["bytes"].get<double>());
    EXPECT_EQ(run["views"][1]["equal"], 200) << "rows of all tokens are those of the target";
    EXPECT_GT(run["views"][3]["equal"], 170) << "pages of all tokens are nearly so";
}

TEST(Views, WantATextThatIsLongEnough) {
    const TemporaryFolder folder;
    const std::string file = folder.write("t.txt", long_text()).string();
    const auto refused_views = [&](const std::vector<std::string>& more) {
        std::vector<std::string> arguments{"views", "--views", "mass", "--file", file, "--threads", "1"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const ProgramResult result = run_program(arguments);
        EXPECT_EQ(result.code, 1) << result.err;
        return result.err;
    };
    EXPECT_THAT(refused_views({"--file", "/dev/zero"}), HasSubstr("this is a device"));
    EXPECT_THAT(refused_views({}), HasSubstr("1024 to compare do not fit"));
    EXPECT_THAT(refused_views({"--depth", "100000", "--max-tokens", "8"}), HasSubstr("lower --depth"));
    EXPECT_THAT(refused_views({"--max-tokens", "8", "--ctx", "64"}), HasSubstr("a context of 64"));
    const json run = views_of(file, {"--views", "window", "--max-tokens", "8", "--ctx", "256"});
    EXPECT_EQ(run["depth"], 256 - 64 - 8) << "as much as there is room for";
}

// Who only reads a session shares it with others that do, and needs no right to write.
TEST(Views, TakeTheTextOfASession) {
    const TemporaryFolder folder;
    const std::string session = (folder.path() / "s.session").string();
    ProgramRun product;
    product.shell = fmt::format("exec '{}' \"$@\"", SLIPSTREAM_PRODUCT);
    product.arguments = {"generate",
                         "--no-config",
                         "--tables",
                         "off",
                         "--threads",
                         "1",
                         "--no-template",
                         "--ctx",
                         "1024",
                         "--temperature",
                         "0",
                         "-n",
                         "30",
                         "--session",
                         session,
                         "--prompt-file",
                         folder.write("t.txt", long_text().substr(0, 1600)).string()};
    const ProgramResult begun = run_program(product);
    ASSERT_EQ(begun.code, 0) << begun.err;
    std::filesystem::permissions(session, std::filesystem::perms::owner_read);
    const int reader = ::open(session.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(::flock(reader, LOCK_SH), 0);
    const ProgramResult views = run_program(
        {"views", "--threads", "1", "--json", "--views", "mass", "--session", session, "--depth", "300", "-n", "64"});
    ::close(reader);
    EXPECT_EQ(views.code, 0) << views.err;
    EXPECT_THAT(views.out, HasSubstr("\"depth\": 300"));
}

}  // namespace
}  // namespace slipstream::tools
