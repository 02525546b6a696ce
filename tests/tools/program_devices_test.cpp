// Several devices as a user names them: the text of one, whatever they hold, and one line where it cannot be done.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

using testing::HasSubstr;

std::vector<std::string> generate(std::vector<std::string> more) {
    std::vector<std::string> arguments{
        "generate", "--prompt", "The wolf said", "--max-tokens", "150",         "--temperature", "0.8",
        "--seed",   "5",        "--ctx",         "1024",         "--no-config", "--tables",      "off"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
}

nlohmann::json stats_of(const std::vector<std::string>& more, std::string& text) {
    return run_with_statistics(generate(more), text);
}

std::string text_of(const std::vector<std::string>& more) {
    const ProgramResult result = run_program(generate(more));
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
}

TEST(SeveralDevices, GiveTheTextOfOneWhateverTheyHold) {
    const std::string plain = text_of({"--draft", "none"});
    const std::string drawn = text_of({"--draft", "context", "--verify", "rejection", "--budget", "6"});
    for (const std::vector<std::string>& devices : std::vector<std::vector<std::string>>{
             {"--devices", "cpu,cpu"},
             {"--devices", "cpu,cpu", "--device-memory", "13M"},
             {"--devices", "cpu,cpu", "--device-memory", "15M,13M", "--link-gib-s", "0.5,0.25"},
             {"--devices", "cpu,cpu", "--device-memory", "14M,none", "--link-gib-s", "0.5"},
             {"--devices", "cpu,cpu,cpu", "--device-memory", "13M", "--shares", "2,1,1"}}) {
        for (const char* draft : {"none", "auto", "context,recycling", "model,context"}) {
            std::vector<std::string> options = devices;
            options.insert(options.end(), {"--draft", draft});
            EXPECT_EQ(text_of(options), plain) << testing::PrintToString(options);
        }
        std::vector<std::string> options = devices;
        options.insert(options.end(), {"--draft", "context", "--verify", "rejection", "--budget", "6"});
        EXPECT_EQ(text_of(options), drawn) << testing::PrintToString(options);
    }
}

// Each device has a view of its layers, beside all of its weights.
TEST(SeveralDevices, GuessOverTheirViewsOfTheKv) {
    const std::vector<std::string> rejection{"--verify", "rejection"};
    for (const char* draft : {"retrieval", "model,retrieval", "context,recycling,retrieval"}) {
        const bool draws = std::string_view(draft) != "context,recycling,retrieval";
        // The view is used in each pass, whether it pays here or not.
        std::vector<std::string> guessing{"--draft",     draft, "--budget",       "6",
                                          "--kv-budget", "64",  "--view-rebuild", "16"};
        const std::string plain = text_of({"--draft", "none"});
        std::vector<std::string> drawing = guessing;
        drawing.insert(drawing.end(), rejection.begin(), rejection.end());
        const std::string drawn = draws ? text_of(drawing) : "";
        for (const std::vector<std::string>& devices : std::vector<std::vector<std::string>>{
                 {"--devices", "cpu,cpu"},
                 {"--devices", "cpu,cpu", "--device-memory", "40M,32M", "--link-gib-s", "0.5,0.25", "--self-check"},
                 {"--devices", "cpu,cpu,cpu", "--device-memory", "40M,none,32M", "--shares", "2,1,1"}}) {
            std::vector<std::string> options = guessing;
            options.insert(options.end(), devices.begin(), devices.end());
            std::string text;
            const nlohmann::json stats = stats_of(options, text);
            EXPECT_EQ(text, plain) << testing::PrintToString(options);
            EXPECT_FALSE(stats["rungs"].empty());
            EXPECT_EQ(stats["view"]["type"], "f16") << "64 tokens are too few for pages";
            EXPECT_GT(stats["view"]["bytes"], 0);
            EXPECT_GT(stats["view"]["rebuilds"], 0);
            EXPECT_EQ(stats["view"]["aliased_bytes"], 0);
            EXPECT_GT(stats["view"]["acceptance"], 0.0);
            EXPECT_TRUE(devices.size() < 4 || stats["peak"]["device_bytes"][0] <= (40 << 20));
            EXPECT_TRUE(devices.size() < 4 || stats["peak"]["device_bytes"].back() <= (32 << 20));
            if (!draws || devices.back() == "--self-check") continue;
            options.insert(options.end(), rejection.begin(), rejection.end());
            EXPECT_EQ(text_of(options), drawn) << testing::PrintToString(options);
        }
    }
}

TEST(SeveralDevices, AreToldOneByOne) {
    std::string text;
    const nlohmann::json stats = stats_of({"--draft", "context", "--budget", "8", "--self-check", "--devices",
                                           "cpu,cpu,cpu", "--device-memory", "16M,16M,none", "--shares", "2,2,1"},
                                          text);
    EXPECT_EQ(text, text_of({"--draft", "none"}));
    EXPECT_EQ(stats["exact"], true);
    EXPECT_EQ(stats["devices"], nlohmann::json({"cpu", "cpu", "cpu"}));
    EXPECT_EQ(stats["plan"]["split"], "layers");
    EXPECT_EQ(stats["plan"]["layers"].size(), 3U);
    const nlohmann::json peak = stats["peak"]["device_bytes"];
    ASSERT_EQ(peak.size(), 3U);
    EXPECT_LE(peak[0], 16 << 20);
    EXPECT_LE(peak[1], 16 << 20);
    std::size_t sum = 0;
    for (const std::size_t bytes : peak) sum += bytes;
    EXPECT_LE(sum, stats["plan"]["device_bytes"].get<std::size_t>());
    const nlohmann::json busy = stats["streamed"]["link_busy_fraction"];
    ASSERT_EQ(busy.size(), 3U);
    EXPECT_GT(busy[0], 0.0);
    EXPECT_EQ(busy[2], 0.0);
}

// A prompt of many pieces brings each weight over once, as one of one piece does, and its hidden states are planned
// for.
TEST(SeveralDevices, APromptBringsEachWeightOnce) {
    const TemporaryFolder folder;
    const auto run = [&](int n_words, std::vector<std::string> more) {
        std::string words;
        for (int i = 0; i < n_words; ++i) words += i % 9 == 8 ? "wolf. " : "the old ";
        std::vector<std::string> options{"generate",  "--prompt-file", folder.write("prompt", words).string(),
                                         "--ctx",     "4096",          "--max-tokens",
                                         "1",         "--draft",       "none",
                                         "--tables",  "off",           "--no-config",
                                         "--devices", "cpu,cpu"};
        options.insert(options.end(), more.begin(), more.end());
        std::string text;
        return run_with_statistics(options, text);
    };
    for (const int n_words : {300, 900}) {
        const nlohmann::json stats = run(n_words, {"--device-memory", "14M"});
        ASSERT_GT(stats["prompt_tokens"], n_words == 300 ? 512 : 3 * 512);
        EXPECT_GT(stats["streamed"]["prompt_weights_bytes"], 0);
        EXPECT_EQ(stats["streamed"]["prompt_weights_bytes"], stats["plan"]["streamed_weights_bytes"]);
    }
    // Nothing streams, and hidden states are all that the host keeps.
    const std::size_t hidden = run(900, {"--device-memory", "64M"})["peak"]["pinned_bytes"];
    EXPECT_GT(hidden, 0U);
    // One piece at a time where the host is to keep less.
    EXPECT_EQ(run(900, {"--device-memory", "64M", "--host-memory", "1M"})["peak"]["pinned_bytes"], 0U);
}

TEST(SeveralDevices, TeacherForcedLogitsAreThoseOfOne) {
    const TemporaryFolder folder;
    std::string ids;
    for (int i = 0; i < 300; ++i) ids += fmt::format("{} ", (i * 37) % 500 + 3);
    const std::string file = folder.write("ids", ids).string();
    const auto logits = [&](const char* name, std::vector<std::string> more) {
        const std::string out = (folder.path() / name).string();
        std::vector<std::string> arguments{"perplexity", "--tokens", file, "--logits", out, "--no-config"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const ProgramResult result = run_program(arguments);
        EXPECT_EQ(result.code, 0) << result.err;
        return file_text(out);
    };
    const std::string one = logits("one", {});
    ASSERT_FALSE(one.empty());
    EXPECT_TRUE(one == logits("two", {"--devices", "cpu,cpu", "--pass", "16"}));
    EXPECT_TRUE(one == logits("three", {"--devices", "cpu,cpu,cpu", "--device-memory", "13M", "--pass", "8"}));
}

TEST(SeveralDevices, ASessionGoesOnOnAnotherSplit) {
    const std::string whole = text_of({"--draft", "none", "--max-tokens", "700"});
    const std::vector<std::vector<std::string>> splits{{"--devices", "cpu"},
                                                       {"--devices", "cpu,cpu", "--shares", "3,1"},
                                                       {"--devices", "cpu,cpu,cpu", "--device-memory", "13M"}};
    for (std::size_t i = 0; i < splits.size(); ++i) {
        const std::vector<std::string>& second = splits[(i + 1) % splits.size()];
        const TemporaryFolder folder;
        const std::string session = (folder.path() / "s").string();
        std::vector<std::string> begin = splits[i];
        begin.insert(begin.end(), {"--session", session, "--max-tokens", "400"});
        EXPECT_EQ(run_program(generate(begin)).code, 0);
        std::vector<std::string> more{"generate", "--session", session, "--max-tokens",
                                      "700",      "--tables",  "off",   "--no-config"};
        more.insert(more.end(), second.begin(), second.end());
        const ProgramResult result = run_program(more);
        EXPECT_EQ(result.code, 0) << result.err;
        EXPECT_EQ(result.out, whole) << splits[i][1] << " then " << second[1];
    }
}

TEST(SeveralDevices, BenchRunsOnThem) {
    const ProgramResult result =
        run_program({"bench", "--devices", "cpu,cpu", "--device-memory", "13M", "--passes", "1,4", "--depth", "64",
                     "--ctx", "512", "--repeat", "1", "--json", "--no-config"});
    EXPECT_EQ(result.code, 0) << result.err;
    const nlohmann::json json = nlohmann::json::parse(result.out, nullptr, false);
    ASSERT_FALSE(json.is_discarded()) << result.out;
    EXPECT_EQ(json["runs"][0]["passes"].size(), 2U);
}

TEST(SeveralDevices, WhatCannotBeDoneIsSaidInOneLine) {
    const auto refused = [](std::vector<std::string> more, int code, const char* words) {
        const ProgramResult result = run_program(generate(std::move(more)));
        EXPECT_EQ(result.code, code) << result.err;
        EXPECT_THAT(result.err, HasSubstr(words));
        EXPECT_EQ(result.out, "");
        EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    };
    refused({"--devices", "cpu,,cpu"}, 2, "found ''");
    refused({"--devices", "cpu,"}, 2, "found ''");
    refused({"--devices", "cpu,gpu"}, 2, "found 'gpu'");
    refused({"--devices", "cuda:0,cuda:0"}, 2, "named twice");
    refused({"--devices", "cpu,cpu,cpu", "--device-memory", "1G,1G"}, 2, "2 values for 3 devices");
    refused({"--devices", "cpu,cpu", "--shares", "2,1,1"}, 2, "3 values for 2 devices");
    refused({"--devices", "cpu,cpu", "--shares", "1000,1"}, 1, "less than one layer");
    refused({"--shares", "2,1"}, 2, "requires several devices");
    refused({"--devices", "cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu"}, 1,
            "cannot be shared among 17 devices");
    refused({"--devices", "cpu,cpu", "--device-memory", "1M"}, 1, "device 1 of 2: a device budget of");
}

}  // namespace
}  // namespace slipstream::tools
