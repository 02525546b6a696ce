// --trace through the program: that Perfetto's format holds however a run ends, that its copies are those of the
// statistics, and what is said where it cannot be written.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

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
using testing::IsSupersetOf;
using Arguments = std::vector<std::string>;

Arguments joined(Arguments front, const Arguments& back) {
    front.insert(front.end(), back.begin(), back.end());
    return front;
}

// The events of a trace, whose array may lack its end.
json events_of(const std::string& path) {
    const std::string text = file_text(path);
    json events = json::parse(text, nullptr, false);
    if (events.is_discarded()) events = json::parse(text + "]", nullptr, false);
    EXPECT_TRUE(events.is_array()) << text.substr(0, 200);
    return events;
}

std::set<std::string> names_of(const json& events, const std::string& category) {
    std::set<std::string> names;
    for (const json& event : events)
        if (event.value("cat", "") == category) names.insert(event["name"]);
    return names;
}

std::vector<std::string> tracks_of(const json& events) {
    std::vector<std::string> tracks;
    for (const json& event : events)
        if (event["name"] == "thread_name") tracks.push_back(event["args"]["name"]);
    return tracks;
}

std::uint64_t copied(const json& events, const char* what) {
    std::uint64_t bytes = 0;
    for (const json& event : events)
        if (event.value("cat", "") == "copy" && event["name"] == what)
            bytes += event["args"]["bytes"].get<std::uint64_t>();
    return bytes;
}

// Spans of a track must be nested: Perfetto draws nothing else. A microsecond is lost to the decimals of the format.
void expect_nested(const json& events) {
    std::map<int, std::vector<std::pair<double, double>>> tracks;
    for (const json& event : events)
        if (event["ph"] == "X")
            tracks[event["tid"]].emplace_back(event["ts"].get<double>(),
                                              event["ts"].get<double>() + event["dur"].get<double>());
    for (auto& [track, spans] : tracks) {
        std::ranges::sort(spans, [](const auto& a, const auto& b) {
            return a.first != b.first ? a.first < b.first : a.second > b.second;
        });
        std::vector<double> open;
        for (const auto& [begin, end] : spans) {
            while (!open.empty() && open.back() <= begin + 0.002) open.pop_back();
            ASSERT_LE(end, open.empty() ? end : open.back() + 0.002) << "track " << track << " at " << begin;
            open.push_back(end);
        }
    }
}

Arguments generate(const Arguments& more) {
    return joined({"generate", "--prompt", "The wolf said", "--max-tokens", "60", "--temperature", "0.8", "--seed", "5",
                   "--ctx", "2048", "--tables", "off", "--no-config"},
                  more);
}

// Runs with a trace and without, and returns the statistics of the first.
json traced(const Arguments& more, const std::string& path) {
    std::string plain;
    std::string text;
    static_cast<void>(run_with_statistics(generate(more), plain));
    const json stats = run_with_statistics(joined(generate(more), {"--trace", path}), text);
    EXPECT_EQ(text, plain);
    return stats;
}

TEST(Trace, ShowsOpsByLayerAndTheStepsOfGeneration) {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "trace.json").string();
    static_cast<void>(traced({"--draft", "context,recycling"}, path));
    const json events = events_of(path);
    EXPECT_THAT(names_of(events, "op"), IsSupersetOf({"embed", "norm", "qkv", "rope/kv write", "attention", "output",
                                                      "gate/up", "activation", "down", "head"}));
    EXPECT_THAT(names_of(events, "step"), IsSupersetOf({"draft", "pass", "verify", "commit", "learn"}));
    EXPECT_THAT(names_of(events, "copy"), testing::IsEmpty());
    EXPECT_THAT(tracks_of(events), testing::UnorderedElementsAre("cpu ops", "cpu copies", "generation"));
    std::set<int> layers;
    for (const json& event : events)
        if (event["name"] == "attention") layers.insert(event["args"]["layer"].get<int>());
    EXPECT_THAT(layers, testing::ElementsAre(0, 1, 2, 3, 4, 5));
    expect_nested(events);
}

TEST(Trace, ItsCopiesAreThoseOfTheStatistics) {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "trace.json").string();
    std::string prompt;
    for (int i = 0; i < 150; ++i) prompt += "The wolf said nothing at all. ";
    bool streamed_weights = false;
    bool streamed_kv = false;
    for (const Arguments& more :
         std::vector<Arguments>{{"--device-memory", "15M"},
                                {"--device-memory", "17M", "--draft", "none"},
                                {"--device-memory", "20M", "--prompt", prompt},
                                {"--device-memory", "20M", "--ring", "2M", "--prompt", prompt, "--draft", "none"},
                                {"--device-memory", "20M", "--self-check", "--budget", "8"},
                                {"--devices", "cpu,cpu", "--device-memory", "13M", "--prompt", prompt},
                                {"--devices", "cpu,cpu", "--split", "tensor", "--device-memory", "11M"}}) {
        const json stats = traced(more, path);
        const json& streamed = stats["streamed"];
        const json events = events_of(path);
        const auto weights =
            streamed["weights_bytes"].get<std::uint64_t>() + streamed["prompt_weights_bytes"].get<std::uint64_t>();
        const auto kv = streamed["kv_bytes"].get<std::uint64_t>() + streamed["prompt_kv_bytes"].get<std::uint64_t>();
        EXPECT_EQ(copied(events, "weights"), weights) << testing::PrintToString(more);
        EXPECT_EQ(copied(events, "KV"), kv) << testing::PrintToString(more);
        EXPECT_FALSE(names_of(events, "wait").empty()) << testing::PrintToString(more);
        expect_nested(events);
        streamed_weights |= weights > 0;
        streamed_kv |= kv > 0;
    }
    EXPECT_TRUE(streamed_weights);
    EXPECT_TRUE(streamed_kv);
}

// Each device has its rows, and layers have their numbers in the whole model.
TEST(Trace, SeveralDevicesHaveTheirOwnTracks) {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "trace.json").string();
    for (const char* split : {"layers", "tensor"}) {
        static_cast<void>(traced({"--devices", "cpu,cpu", "--split", split, "--draft", "none"}, path));
        const json events = events_of(path);
        EXPECT_THAT(tracks_of(events), testing::SizeIs(5));
        std::map<int, std::set<int>> layers;  // by track
        for (const json& event : events)
            if (event["name"] == "down") layers[event["tid"]].insert(event["args"]["layer"].get<int>());
        ASSERT_EQ(layers.size(), 2U) << split;
        std::set<int> all;
        for (const auto& [track, own] : layers) {
            all.insert(own.begin(), own.end());
            EXPECT_EQ(own.size() == 6, std::string(split) == "tensor") << split;
        }
        EXPECT_EQ(all.size(), 6U) << split;
        EXPECT_EQ(names_of(events, "op").contains("sum"), std::string(split) == "tensor");
        expect_nested(events);
    }
}

TEST(Trace, IsWholeAfterAnInterruptAndReadableAfterKill) {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "trace.json").string();
    for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
        RunningProgram program(
            {.arguments = {"generate", "--prompt", "Once", "--stop", "no text has this", "--ignore-eos", "--tables",
                           "off", "--no-config", "--draft", "none", "--trace", path}});
        program.wait_for_output(100);
        std::this_thread::sleep_for(std::chrono::milliseconds(600));
        program.send(signal);
        static_cast<void>(program.finish());
        const std::string text = file_text(path);
        EXPECT_EQ(json::accept(text), signal != SIGKILL);
        const json events = json::parse(signal == SIGKILL ? text + "]" : text, nullptr, false);
        ASSERT_TRUE(events.is_array()) << signal;
        EXPECT_GT(events.size(), 100U) << signal;
        std::filesystem::remove(path);
    }
}

TEST(Trace, APlaceThatCannotBeWrittenIsFoundBeforeTheWork) {
    const TemporaryFolder folder;
    for (const std::string& place : {std::string("/nonexistent/f"), folder.path().string()}) {
        for (const char* command : {"generate", "chat", "bench"}) {
            const ProgramResult result =
                run_program({.arguments = {command, "-n", "2", "--no-config", "--trace", place}, .input = "x\n"});
            EXPECT_EQ(result.code, 1) << result.err;
            EXPECT_EQ(result.out, "");
            EXPECT_THAT(result.err, HasSubstr(place));
            EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
        }
    }
    const ProgramResult stdout_asked = run_program(generate({"--trace", "-"}));
    EXPECT_EQ(stdout_asked.code, 2);
    EXPECT_THAT(stdout_asked.err, HasSubstr("it cannot go to stdout"));
    const std::string path = (folder.path() / "both").string();
    const ProgramResult same = run_program(generate({"--trace", path, "--stats", path}));
    EXPECT_EQ(same.code, 2);
    EXPECT_THAT(same.err, HasSubstr("the same file"));
    EXPECT_FALSE(std::filesystem::exists(path));
}

// As with a session: one line, and the text goes on.
TEST(Trace, AFullDiskEndsTheTraceAlone) {
    std::string plain;
    static_cast<void>(run_with_statistics(generate({}), plain));
    const ProgramResult result = run_program(generate({"--trace", "/dev/full"}));
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.out, plain);
    EXPECT_THAT(result.err, HasSubstr("the trace /dev/full ends here: No space left on device; the run goes on"));
}

TEST(Trace, OfAChatHoldsAllAnswers) {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "trace.json").string();
    const ProgramResult result = run_program(
        {.arguments = {"chat", "-n", "8", "--temperature", "0", "--no-config", "--tables", "off", "--trace", path},
         .input = "Once\nTwice\n"});
    EXPECT_EQ(result.code, 0) << result.err;
    const json events = events_of(path);
    EXPECT_THAT(names_of(events, "step"), IsSupersetOf({"draft", "pass", "verify"}));
}

// Each column of a benchmark has its row; passes of --passes are recorded, too.
TEST(Trace, OfABenchmark) {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "trace.json").string();
    const auto bench = [&](const Arguments& more) {
        return run_program(joined({"bench", "--repeat", "1", "--no-config", "--trace", path}, more));
    };
    const ProgramResult drafts = bench({"-n", "8", "--tables", "off", "--draft", "context", "--draft", "suffix"});
    EXPECT_EQ(drafts.code, 0) << drafts.err;
    const json events = events_of(path);
    EXPECT_THAT(tracks_of(events), testing::UnorderedElementsAre("cpu ops", "cpu copies", "none", "context", "suffix"));
    EXPECT_THAT(names_of(events, "step"), IsSupersetOf({"draft", "pass", "verify"}));
    expect_nested(events);

    const ProgramResult passes = bench({"--passes", "3", "--device-memory", "15M"});
    EXPECT_EQ(passes.code, 0) << passes.err;
    const json of_passes = events_of(path);
    EXPECT_THAT(names_of(of_passes, "op"), IsSupersetOf({"qkv", "attention", "down"}));
    EXPECT_GT(copied(of_passes, "weights"), 0U);

    const ProgramResult sweep = bench({"--sweep", "threads=1;2"});
    EXPECT_EQ(sweep.code, 2);
    EXPECT_THAT(sweep.err, HasSubstr("records one run"));
}

// A text that is complete already is computed by no pass.
TEST(Trace, OfAFinishedSessionHasNoSpans) {
    const TemporaryFolder folder;
    const std::string session = (folder.path() / "s").string();
    const std::string path = (folder.path() / "trace.json").string();
    EXPECT_EQ(run_program(generate({"--session", session})).code, 0);
    EXPECT_EQ(run_program(generate({"--session", session, "--trace", path})).code, 0);
    const json events = events_of(path);
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0]["name"], "process_name");
}

}  // namespace
}  // namespace slipstream::tools
