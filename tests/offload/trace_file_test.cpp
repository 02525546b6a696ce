// TraceFile: what the file holds after each way to end, and that it never grows past its limit.
#include "offload/trace_file.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "tests/support/file_limit.h"
#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

using nlohmann::json;

std::string text_of(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

TraceSpan span_of(std::uint32_t track, std::int64_t bytes) {
    const auto now = TraceFile::Clock::now();
    return {.name = "weights",
            .category = "copy",
            .track = track,
            .begin = now,
            .end = now + std::chrono::nanoseconds(1234567),
            .layer = 3,
            .bytes = bytes};
}

std::size_t n_spans(const json& events) {
    return static_cast<std::size_t>(
        std::count_if(events.begin(), events.end(), [](const json& event) { return event["ph"] == "X"; }));
}

TEST(TraceFile, HoldsTracksAndSpansAsEvents) {
    const TempFolder folder;
    const auto path = folder.write("t.json", "what was there before, longer than nothing");
    {
        TraceFile trace(path);
        EXPECT_EQ(text_of(path), "what was there before, longer than nothing");
        const std::uint32_t track = trace.add_track("cuda:0 \"copies\"\n");
        trace.add(span_of(track, 4096));
        trace.add({.name = "draft", .category = "step", .track = track, .begin = {}, .end = {}});
        trace.complete();
        trace.add(span_of(track, 1));  // too late
        EXPECT_FALSE(trace.take_note());
    }
    json events = json::parse(text_of(path));
    ASSERT_EQ(events.size(), 4U);
    EXPECT_EQ(events[0], json::parse(R"({"name":"process_name","ph":"M","pid":1,"args":{"name":"slipstream"}})"));
    events.erase(0);
    EXPECT_EQ(events[0]["ph"], "M");
    EXPECT_EQ(events[0]["name"], "thread_name");
    EXPECT_EQ(events[0]["args"]["name"], "cuda:0 ?copies??");
    EXPECT_EQ(events[1]["tid"], events[0]["tid"]);
    EXPECT_EQ(events[1]["name"], "weights");
    EXPECT_EQ(events[1]["cat"], "copy");
    EXPECT_EQ(events[1]["dur"], 1234.567);
    EXPECT_EQ(events[1]["args"], json({{"layer", 3}, {"bytes", 4096}}));
    EXPECT_GE(events[1]["ts"], 0.0);
    EXPECT_EQ(events[2]["args"], json::object());
    EXPECT_EQ(events[2]["ts"], 0.0);  // before the trace: never negative
}

TEST(TraceFile, SpansOfSeveralThreadsAreWhole) {
    const TempFolder folder;
    const auto path = folder.path() / "t.json";
    {
        TraceFile trace(path);
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i)
            threads.emplace_back([&trace, track = trace.add_track("track")] {
                for (int n = 0; n < 5000; ++n) trace.add(span_of(track, n));
            });
        for (std::thread& thread : threads) thread.join();
    }
    EXPECT_EQ(n_spans(json::parse(text_of(path))), 20000U);
}

TEST(TraceFile, EndsAtItsLimitAndSaysSo) {
    const TempFolder folder;
    const auto path = folder.path() / "t.json";
    constexpr std::uint64_t kLimit = 64 << 10;
    TraceFile trace(path, kLimit);
    const std::uint32_t track = trace.add_track("track");
    for (int n = 0; n < 5000; ++n) trace.add(span_of(track, n));
    trace.complete();
    const std::string text = text_of(path);
    EXPECT_LE(text.size(), kLimit);
    EXPECT_GT(text.size(), kLimit / 2);
    EXPECT_GT(n_spans(json::parse(text)), 300U);
    const auto note = trace.take_note();
    ASSERT_TRUE(note);
    EXPECT_NE(note->find("64.0 KiB"), std::string::npos) << *note;
    EXPECT_FALSE(trace.take_note());
}

// On a full disk what was written stays, without half an event.
TEST(TraceFile, AFullDiskEndsTheTraceAndNotTheRun) {
    const TempFolder folder;
    const auto path = folder.path() / "t.json";
    TraceFile trace(path);
    {
        const FileLimit full(10000);
        const std::uint32_t track = trace.add_track("track");
        for (int n = 0; n < 500; ++n) trace.add(span_of(track, n));
        trace.complete();
    }
    const std::string text = text_of(path);
    EXPECT_EQ(text.size(), 8192U);
    EXPECT_GT(n_spans(json::parse(text + "]")), 10U);
    const auto note = trace.take_note();
    ASSERT_TRUE(note);
    EXPECT_NE(note->find("File too large"), std::string::npos) << *note;
}

// A killed program leaves whole events, and an array that lacks its end.
TEST(TraceFile, AKilledProgramLeavesWholeEvents) {
    const TempFolder folder;
    const auto path = folder.path() / "t.json";
    for (int round = 0; round < 5; ++round) {
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            TraceFile trace(path);
            const std::uint32_t track = trace.add_track("track");
            for (std::int64_t n = 0;; ++n) {
                trace.add(span_of(track, n));
                if (n % 1000 == 0) ::usleep(1000);
            }
        }
        struct stat status {};
        while (::stat(path.c_str(), &status) != 0 || status.st_size < (round + 1) * 50000) ::usleep(1000);
        ::kill(child, SIGKILL);
        int code = 0;
        ::waitpid(child, &code, 0);
        const std::string text = text_of(path);
        EXPECT_EQ(text.size() % 4096, 0U);
        EXPECT_GT(n_spans(json::parse(text + "]")), 300U) << "round " << round;
        std::filesystem::remove(path);
    }
}

TEST(TraceFile, AFileThatWasNeverBegunIsGoneOrAsBefore) {
    const TempFolder folder;
    const auto kept = folder.write("kept", "before");
    const auto fresh = folder.path() / "fresh";
    {
        const TraceFile one(kept);
        const TraceFile other(fresh);
    }
    EXPECT_EQ(text_of(kept), "before");
    EXPECT_FALSE(std::filesystem::exists(fresh));
    TraceFile(fresh).complete();
    const json events = json::parse(text_of(fresh));
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0]["name"], "process_name");
}

TEST(TraceFile, APlaceThatCannotBeWrittenIsRefusedAtOnce) {
    const TempFolder folder;
    EXPECT_THROW(TraceFile(folder.path()), IoError);
    EXPECT_THROW(TraceFile(folder.path() / "none" / "t.json"), IoError);
    const auto pipe = folder.path() / "pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_THROW(TraceFile{pipe}, IoError);
    TraceFile("/dev/null").complete();
}

}  // namespace
}  // namespace slipstream
