// Matrices split among several devices, as a user asks for it: one text of a split, whatever streams and guesses; and
// one line where it cannot be done.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kTensor{"--devices", "cpu,cpu", "--split", "tensor"};

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

std::vector<std::string> generate(const std::vector<std::string>& more) {
    return joined({"generate", "--prompt", "The wolf said", "--max-tokens", "150", "--temperature", "0.8", "--seed",
                   "5", "--ctx", "1024", "--no-config", "--tables", "off"},
                  more);
}

std::string text_of(const std::vector<std::string>& more) {
    const ProgramResult result = run_program(generate(more));
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
}

TEST(TensorSplit, GivesOneTextWhateverStreamsAndGuesses) {
    const std::string plain = text_of(joined(kTensor, {"--draft", "none"}));
    EXPECT_NE(plain, "");
    for (const std::string draft : {"none", "auto", "context,recycling", "model,context"}) {
        // As little as weights stream with, beside who guesses.
        const std::string least = draft == "none" ? "12M" : "15M";
        for (const std::vector<std::string>& memory : std::vector<std::vector<std::string>>{
                 {},
                 {"--device-memory", least},
                 {"--device-memory", least + ",none", "--link-gib-s", "0.5", "--shares", "1,1"}})
            EXPECT_EQ(text_of(joined(joined(kTensor, memory), {"--draft", draft})), plain)
                << testing::PrintToString(memory) << draft;
    }
}

// Each device has a view of its heads, beside all of its weights.
TEST(TensorSplit, GuessesOverItsViewsOfTheKv) {
    const std::string plain = text_of(joined(kTensor, {"--draft", "none"}));
    const std::vector<std::string> rejection{"--verify", "rejection", "--budget", "6"};
    for (const char* draft : {"retrieval", "model,retrieval", "context,recycling,retrieval"}) {
        const bool draws = std::string_view(draft) != "context,recycling,retrieval";
        const std::vector<std::string> guessing =
            joined(kTensor, {"--draft", draft, "--kv-budget", "64", "--view-rebuild", "16"});
        const std::string drawn = draws ? text_of(joined(guessing, rejection)) : "";
        for (const std::vector<std::string>& memory : std::vector<std::vector<std::string>>{
                 {},
                 {"--device-memory", "32M", "--link-gib-s", "0.5,0.25", "--shares", "1,1", "--self-check"},
                 {"--device-memory", "32M,none", "--shares", "1,1"}}) {
            std::string text;
            const nlohmann::json stats = run_with_statistics(generate(joined(guessing, memory)), text);
            EXPECT_EQ(text, plain) << testing::PrintToString(memory) << draft;
            EXPECT_FALSE(stats["rungs"].empty());
            EXPECT_TRUE(memory.empty() || stats["peak"]["device_bytes"][0] <= (32 << 20));
            if (!draws || (!memory.empty() && memory.back() == "--self-check")) continue;
            EXPECT_EQ(text_of(joined(joined(guessing, memory), rejection)), drawn)
                << testing::PrintToString(memory) << draft;
        }
    }
}

TEST(TensorSplit, IsToldAndChecked) {
    std::string text;
    const nlohmann::json stats =
        run_with_statistics(generate(joined(kTensor, {"--device-memory", "15M,none", "--shares", "1,1", "--link-gib-s",
                                                      "1", "--draft", "context", "--budget", "8", "--self-check"})),
                            text);
    EXPECT_EQ(stats["exact"], true);
    EXPECT_EQ(stats["plan"]["split"], "tensor");
    EXPECT_EQ(stats["plan"]["kv_heads"], nlohmann::json({1, 1}));
    const nlohmann::json peak = stats["peak"]["device_bytes"];
    ASSERT_EQ(peak.size(), 2U);
    EXPECT_LE(peak[0], 15 << 20);
    std::size_t sum = 0;
    for (const std::size_t bytes : peak) sum += bytes;
    EXPECT_LE(sum, stats["plan"]["device_bytes"].get<std::size_t>());
    const nlohmann::json busy = stats["streamed"]["link_busy_fraction"];
    ASSERT_EQ(busy.size(), 2U);
    EXPECT_GT(busy[0], 0.0);
    EXPECT_EQ(busy[1], 0.0);
}

// Between unequal devices heads are planned, which measures; then they stay.
TEST(TensorSplit, IsPlannedOnceBetweenUnequalDevices) {
    const TemporaryFolder folder;
    const std::vector<std::string> options = joined(
        {"generate", "--prompt", "The wolf said", "--max-tokens", "40", "--temperature", "0", "--ctx", "1024",
         "--no-config", "--device-memory", "20M,16M", "--draft", "none", "--tables", folder.path().string(), "-v"},
        kTensor);
    const ProgramResult first = run_program(options);
    EXPECT_EQ(first.code, 0) << first.err;
    EXPECT_THAT(first.err, HasSubstr("sums between the devices: host memory\n"));
    EXPECT_THAT(first.err, HasSubstr("shares = 1,1 kv heads (planned: the least time for a pass)"));
    const ProgramResult second = run_program(options);
    EXPECT_THAT(second.err, HasSubstr("shares = 1,1 kv heads (planned before, and kept)"));
    EXPECT_EQ(second.out, first.out);
}

TEST(TensorSplit, ASessionGoesOnOnItsOwnSplitAlone) {
    const std::string whole = text_of(joined(kTensor, {"--draft", "none", "--max-tokens", "700"}));
    const TemporaryFolder folder;
    const auto begin = [&](const char* name, const std::vector<std::string>& devices) {
        const std::string session = (folder.path() / name).string();
        EXPECT_EQ(run_program(generate(joined(devices, {"--session", session, "--max-tokens", "400"}))).code, 0);
        return session;
    };
    const auto go_on = [](const std::string& session, const std::vector<std::string>& devices) {
        return run_program(joined(
            {"generate", "--session", session, "--max-tokens", "700", "--tables", "off", "--no-config"}, devices));
    };
    const std::string tensor = begin("tensor", kTensor);
    const std::string layers = begin("layers", {"--devices", "cpu,cpu"});
    const auto refused = [](const ProgramResult& result, const char* words) {
        EXPECT_EQ(result.code, 1);
        EXPECT_THAT(result.err, HasSubstr(words));
        EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    };
    refused(go_on(tensor, {"--devices", "cpu"}),
            "was computed with the model split as tensor 1,1, here it would be layers, or none, which decides the "
            "text; give 2 devices of that kind, --split tensor and --shares 1,1, or begin another");
    refused(go_on(tensor, {"--devices", "cpu,cpu", "--split", "layers"}),
            "split as tensor 1,1, here it would be layers");
    refused(go_on(layers, kTensor),
            "was computed with the model split as layers, or none, here it would be tensor 1,1, which decides the "
            "text; leave --split tensor out, or begin another");
    // What a file wishes for gives way.
    const std::string config = folder.write("config.toml", "split = \"tensor\"\n").string();
    const ProgramResult by_layers = run_program({"generate", "--session", layers, "--max-tokens", "410", "--tables",
                                                 "off", "--config", config, "--devices", "cpu,cpu"});
    EXPECT_EQ(by_layers.code, 0) << by_layers.err;
    // With nothing but its name, over what the environment wishes for; and streamed, with the split left out.
    const std::string again = (folder.path() / "again").string();
    std::filesystem::copy_file(tensor, again);
    ProgramRun alone;
    alone.arguments = {"generate", "--session", again, "--max-tokens", "700", "--tables", "off", "--no-config"};
    alone.environment = {{"SLIPSTREAM_DEVICES", "cpu"}};
    EXPECT_EQ(run_program(alone).out, whole);
    const ProgramResult result = go_on(tensor, {"--devices", "cpu,cpu", "--device-memory", "15M"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.out, whole);
}

// Whoever asked for it is named.
TEST(TensorSplit, OfAFileIsRefusedByTheFilesKey) {
    const TemporaryFolder folder;
    const auto refused = [&](const char* text, const std::vector<std::string>& more, const char* words) {
        const std::string config = folder.write("config.toml", text).string();
        const ProgramResult result = run_program(joined({"generate", "--prompt", "x", "--max-tokens", "1", "--tables",
                                                         "off", "--config", config, "--devices", "cpu,cpu"},
                                                        more));
        EXPECT_EQ(result.code, 1);
        EXPECT_THAT(result.err, HasSubstr(words));
        EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    };
    refused("split = \"tensor\"\n", {"--device-memory", "20M,16M"}, "config.toml:1: split: a split over unequal");
    refused("split = \"tensor\"\nshares = \"5,1\"\n", {},
            "config.toml:2: shares: a share of 1 in 6 of 2 kv heads is less than one kv head, for device 2 of 2; "
            "give 1,1, the nearest that goes, or name fewer devices");
}

TEST(TensorSplit, IsPlannedAsItRuns) {
    const std::vector<std::string> memory{"--device-memory", "12M", "--link-gib-s", "0.05", "--draft", "none"};
    const ProgramResult result =
        run_program(joined(joined({"plan", "--ctx", "1024", "--no-config", "--json"}, kTensor), memory));
    EXPECT_EQ(result.code, 0) << result.err;
    const nlohmann::json plan = nlohmann::json::parse(result.out, nullptr, false)["plan"];
    EXPECT_EQ(plan["split"], "tensor");
    EXPECT_EQ(plan["kv_heads"], nlohmann::json({1, 1}));
    EXPECT_GT(plan["streamed_weights_bytes"], 0);
    std::string text;
    const nlohmann::json run = run_with_statistics(generate(joined(kTensor, memory)), text)["plan"];
    for (const char* name : {"device_bytes", "ring_bytes", "resident_weights_bytes", "streamed_weights_bytes"})
        EXPECT_EQ(plan[name], run[name]) << name;
}

TEST(TensorSplit, BenchRunsOnIt) {
    const ProgramResult result = run_program(joined({"bench", "--device-memory", "13M", "--passes", "1,4", "--depth",
                                                     "64", "--ctx", "512", "--repeat", "1", "--json", "--no-config"},
                                                    kTensor));
    EXPECT_EQ(result.code, 0) << result.err;
    const nlohmann::json json = nlohmann::json::parse(result.out, nullptr, false);
    ASSERT_FALSE(json.is_discarded()) << result.out;
    EXPECT_EQ(json["runs"][0]["passes"].size(), 2U);
}

TEST(TensorSplit, WhatCannotBeDoneIsSaidInOneLine) {
    const auto refused = [](const std::vector<std::string>& more, int code, const char* words) {
        const ProgramResult result = run_program(generate(more));
        EXPECT_EQ(result.code, code) << result.err;
        EXPECT_THAT(result.err, HasSubstr(words));
        EXPECT_EQ(result.out, "");
        EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    };
    refused({"--devices", "cpu,cpu,cpu", "--split", "tensor"}, 1, "2 kv heads cannot be shared among 3 devices");
    refused(joined(kTensor, {"--shares", "3,1"}), 1,
            "slipstream: --shares: a share of 1 in 4 of 2 kv heads is less than one kv head, for device 2 of 2; give "
            "1,1, the nearest that goes, or name fewer devices");
    refused({"--devices", "cpu,cpu", "--split", "rows"}, 2, "layers or tensor expected, found 'rows'");
    refused({"--devices", "cpu", "--split", "tensor"}, 2, "requires several devices");
    refused(joined(kTensor, {"--device-memory", "1M"}), 1, "device 1 of 2: a device budget of");
    refused(joined(kTensor, {"--device-memory", "20M,16M"}), 1,
            "slipstream: --split: a split over unequal devices, of matrices, is kept beside the tables, so that texts "
            "stay the same, and there is no such folder; name one by --tables, or give --shares 1,1");
}

}  // namespace
}  // namespace slipstream::tools
