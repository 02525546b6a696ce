// generate --session: a text survives signals, kills and damaged bytes. What a session decides: program/session.txt.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/session/session_file.h"
#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

using Arguments = std::vector<std::string>;

Arguments operator+(Arguments one, const Arguments& more) {
    one.insert(one.end(), more.begin(), more.end());
    return one;
}

const Arguments kTale{
    "generate", "--prompt", "Once upon a time", "--seed", "3", "--max-tokens", "700", "--tables", "off", "-t", "1"};

class SessionProgram : public testing::Test {
protected:
    [[nodiscard]] std::string file(const std::string& name) const { return (folder_.path() / name).string(); }
    [[nodiscard]] ProgramResult go_on(const Arguments& more = {}) const {
        return run_program(Arguments{"generate", "--session", file("s")} + more);
    }
    TemporaryFolder folder_;
};

// Kills runs at random moments until one comes to its end; text and --output are those of one run.
void expect_to_survive(const Arguments& command, const TemporaryFolder& folder, int n_kills, unsigned seed) {
    const auto began = std::chrono::steady_clock::now();
    const std::string expected = run_program(command).out;
    ASSERT_GT(expected.size(), 500U);
    // Within a run's time, however fast the machine is.
    const std::chrono::duration<double, std::milli> whole = std::chrono::steady_clock::now() - began;
    const auto latest = static_cast<unsigned>(std::clamp(0.7 * whole.count(), 10.0, 300.0));
    const std::string session = (folder.path() / "s").string();
    const std::string output = (folder.path() / "text").string();
    std::mt19937 random(seed);
    int killed = 0;
    for (int round = 0; round < n_kills; ++round) {
        ProgramRun run;
        run.arguments = command + Arguments{"--session", session, "--output", output};
        RunningProgram program(run);
        std::this_thread::sleep_for(std::chrono::milliseconds(10 + random() % latest));
        const int signal = random() % 3 == 0 ? SIGINT : SIGKILL;
        program.send(signal);
        const ProgramResult result = program.finish();
        if (result.code == 0) break;
        ++killed;
        // A signal may come before there is a handler.
        ASSERT_TRUE(result.code == -1 - signal || result.code == 130) << result.code << " " << result.err;
    }
    EXPECT_GT(killed, 0);
    const ProgramResult last = run_program(command + Arguments{"--session", session, "--output", output});
    ASSERT_EQ(last.code, 0) << last.err;
    EXPECT_EQ(file_text(output), expected);
    const ProgramResult again = run_program(Arguments{"generate", "--session", session});
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(again.out, expected);
}

TEST_F(SessionProgram, SurvivesKillsWithGuesses) {
    expect_to_survive(kTale + Arguments{"--repeat-penalty", "1.1"}, folder_, 6, 1);
}

TEST_F(SessionProgram, SurvivesKillsGreedilyWithoutGuesses) {
    const Arguments command{
        "generate", "--prompt", "The wolf said", "--temperature", "0", "--max-tokens", "700", "--draft", "none",
        "-t",       "1"};
    expect_to_survive(command, folder_, 6, 2);
}

TEST_F(SessionProgram, SurvivesKillsWhereTheModelStreams) {
    expect_to_survive({"generate", "--prompt", "The king", "--seed", "9", "--max-tokens", "500", "--draft", "context",
                       "--tables", "off", "--device-memory", "24M", "-t", "1"},
                      folder_, 5, 3);
}

// Four of six layers have a window, and their rings hold 2,560 tokens: from the first kill on, they are overwritten.
// Weights, KV and rings are resident, or stream.
TEST_F(SessionProgram, SurvivesKillsWhereRingsWereOverwritten) {
    const fs::path model = folder_.path() / "model";
    fs::copy(source_path("tools/demo_model/target"), model);
    nlohmann::json config = nlohmann::json::parse(file_text((model / "config.json").string()));
    config["model_type"] = "smollm3";  // a family with such layers and the tensors of the bundled model
    config["use_sliding_window"] = true;
    config["sliding_window"] = 300;
    config["no_rope_layers"] = std::vector<int>(6, 1);
    for (int layer = 0; layer < 6; ++layer)
        config["layer_types"].push_back(layer % 3 == 2 ? "full_attention" : "sliding_attention");
    fs::permissions(model / "config.json", fs::perms::owner_all);
    std::ofstream(model / "config.json") << config;
    std::string prompt;  // of 2,762 tokens
    for (int i = 0; i < 120; ++i)
        prompt +=
            fmt::format("Once upon a time king {} had a daughter, and the wolf said to her that she was fair. ", i);
    for (const Arguments& memory : {Arguments{}, Arguments{"--device-memory", "16M"}}) {
        const Arguments command =
            Arguments{"generate", "-m",           model.string(), "--ctx", "4096",     "--prompt", prompt, "--seed",
                      "3",        "--ignore-eos", "--max-tokens", "400",   "--tables", "off",      "-t",   "1"} +
            memory;
        std::string expected;
        const nlohmann::json whole = run_with_statistics(command, expected);
        EXPECT_GT(whole["prompt_tokens"], 2560);
        EXPECT_EQ(whole["streamed"]["kv_bytes"] > 0, !memory.empty());
        fs::remove(file("s"));
        const Arguments with_session = command + Arguments{"--session", file("s")};
        for (const std::size_t n_bytes : {1, 500, 1000}) {
            ProgramRun run;
            run.arguments = with_session;
            RunningProgram program(run);
            program.wait_for_output(n_bytes);
            program.send(SIGKILL);
            EXPECT_EQ(program.finish().code, -1 - SIGKILL);
        }
        std::string text;
        const nlohmann::json last = run_with_statistics(with_session, text);
        EXPECT_EQ(text, expected);
        EXPECT_GT(last["resumed_tokens"], 100);
    }
}

TEST_F(SessionProgram, AnInterruptedTextGoesOn) {
    const std::string expected = run_program(kTale).out;
    ProgramRun run;
    run.arguments = kTale + Arguments{"--session", file("s")};
    RunningProgram program(run);
    program.wait_for_output(100);
    program.send(SIGINT);
    const ProgramResult first = program.finish();
    EXPECT_EQ(first.code, 130);
    // The prompt is the session's: stdin is left alone.
    ProgramRun rest;
    rest.arguments = {"generate", "--session", file("s"), "--stats", file("stats"), "--token-ids", file("ids")};
    rest.input = "another prompt";
    const ProgramResult second = run_program(rest);
    EXPECT_EQ(second.code, 0);
    EXPECT_EQ(second.out, expected);
    EXPECT_THAT(second.err, HasSubstr("going on with " + file("s")));
    const auto json = nlohmann::json::parse(file_text(file("stats")));
    EXPECT_EQ(json["generated_tokens"], 700);
    EXPECT_GT(json["resumed_tokens"], 0);
    EXPECT_EQ(json["text_bytes"], expected.size());
    const std::string ids = file_text(file("ids"));
    EXPECT_EQ(std::count(ids.begin(), ids.end(), '\n'), 700);
}

// A wrong bit in KV, a page of zeros in the tail: the text goes on, to the same end, and one line says what was wrong.
TEST_F(SessionProgram, ADamagedSessionGoesOn) {
    const std::string expected = run_program(kTale).out;
    const Arguments shorter{
        "generate", "--prompt", "Once upon a time", "--seed", "3", "--max-tokens", "600", "--tables", "off", "-t", "1"};
    ASSERT_EQ(run_program(shorter + Arguments{"--session", file("s")}).code, 0);
    EXPECT_EQ(fs::status(file("s")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    const std::string whole = file_text(file("s"));
    const SessionContents contents = read_session(std::as_bytes(std::span(whole)), "s");
    ASSERT_GT(contents.kv_chunks.size(), 0U);
    const auto* const first = reinterpret_cast<const std::byte*>(whole.data());
    std::string wrong_bit = whole;
    wrong_bit[static_cast<std::size_t>(contents.kv_chunks[1].payload.data() - first) + 1000] ^= 4;
    std::string zero_page = whole;
    const std::size_t page = whole.size() / 4096 * 4096;
    std::fill(zero_page.begin() + static_cast<std::ptrdiff_t>(page), zero_page.end(), '\0');
    for (const auto& [bytes, line] :
         {std::pair(wrong_bit, "KV of chunk 0 is damaged"), std::pair(zero_page, "bytes are damaged or incomplete")}) {
        folder_.write("s", bytes);
        const ProgramResult result = go_on({"--max-tokens", "700"});
        EXPECT_EQ(result.code, 0) << result.err;
        EXPECT_EQ(result.out, expected);
        const std::size_t at = result.err.find(line);
        ASSERT_NE(at, std::string::npos) << result.err;
        EXPECT_EQ(result.err.find(line, at + 1), std::string::npos) << result.err;
        EXPECT_EQ(go_on().out, expected);
        EXPECT_EQ(go_on().err.find("damaged"), std::string::npos);
    }
}

// A file that names a KV type and has blocks of another's size is refused before its KV is read.
TEST_F(SessionProgram, OfAnEightBitCacheWithBlocksOfAnotherSizeIsRefused) {
    ASSERT_EQ(run_program(kTale + Arguments{"--session", file("s")}).code, 0);
    const std::string text = file_text(file("s"));
    const auto bytes = std::as_bytes(std::span(text));
    SessionContents contents = read_session(bytes, "s");
    contents.begin.kv_dtype = DType::Q8_0;
    fs::remove(file("s"));
    static_cast<void>(SessionFile::create(file("s"), contents.begin));
    const std::string before = file_text(file("s"));
    const ProgramResult result = go_on();
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr("another KV cache of this model"));
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(file_text(file("s")), before);
}

}  // namespace
}  // namespace slipstream::tools
