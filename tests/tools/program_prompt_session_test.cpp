// Prompts that are cut off, in generate and chat: the next run goes on where they were, to the text of one run.
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

using Arguments = std::vector<std::string>;

Arguments operator+(Arguments one, const Arguments& more) {
    one.insert(one.end(), more.begin(), more.end());
    return one;
}

// One line of about 1,300 tokens.
std::string long_message() {
    std::string text = "Once upon a time";
    for (int i = 0; i < 95; ++i) text += fmt::format(" there were {} wolves and {} foxes,", i, i * i % 97);
    return text;
}

void wait_until(const std::function<bool()>& is_true) {
    const auto began = std::chrono::steady_clock::now();
    while (!is_true() && std::chrono::steady_clock::now() - began < std::chrono::minutes(2))
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

// Options of a placement, and whether its prompts go layer by layer.
struct Place {
    Arguments options;
    bool by_layer;
};

class PromptSession : public testing::Test {
protected:
    PromptSession() { folder_.write("long", long_message()); }
    [[nodiscard]] std::string file(const std::string& name) const { return (folder_.path() / name).string(); }
    [[nodiscard]] Arguments generate(const Place& place) const {
        return Arguments{"generate", "--no-config", "-f",  file("long"), "--seed", "3",       "-n",
                         "5",        "--tables",    "off", "-t",         "1",      "--draft", "none"} +
               place.options;
    }
    [[nodiscard]] static Arguments chat(const Place& place) {
        return Arguments{"chat", "--no-config", "--seed", "3",       "-n",   "5",      "--tables",
                         "off",  "-t",          "1",      "--draft", "none", "--stop", "no text has this"} +
               place.options;
    }
    // Runs `arguments` and sends `signal` some time after it has made the file `begun`.
    static ProgramResult cut_off_after(const Arguments& arguments, const std::string& begun,
                                       std::chrono::milliseconds delay, int signal, const std::string& input) {
        ProgramRun run;
        run.arguments = arguments;
        run.input = input;
        RunningProgram program(run);
        wait_until([&] { return !program.is_running() || fs::exists(begun); });
        std::this_thread::sleep_for(delay);
        program.send(signal);
        return program.finish();
    }
    // Runs `arguments` from the start and interrupts it within the prompt, when a part of it is computed, however fast
    // the machine is. `kv` is the session that gets its KV; files that begin with the name `session` are removed
    // before.
    ProgramResult cut_off(const Arguments& arguments, const std::string& session, const std::string& kv, int signal,
                          const std::string& input = "") const {
        std::chrono::milliseconds delay{100};
        ProgramResult result;
        for (int tries = 0; tries < 20; ++tries) {
            for (const std::string& name : names())
                if (name.starts_with(session)) fs::remove(file(name));
            result = cut_off_after(arguments, kv, delay, signal, input);
            const std::int64_t n_kept = kept_tokens(result.err);
            if (n_kept > 0) break;
            delay = n_kept == 0 ? delay * 2 : delay * 2 / 3;  // before a part was computed; after the prompt
        }
        return result;
    }
    // N of "N of M prompt tokens" in a message; -1: there is none.
    static std::int64_t kept_tokens(const std::string& text) {
        std::smatch found;
        return std::regex_search(text, found, std::regex("([0-9]+) of [0-9]+ prompt tokens")) ? std::stoll(found[1])
                                                                                              : -1;
    }
    [[nodiscard]] std::vector<std::string> names() const {
        std::vector<std::string> all;
        for (const auto& entry : fs::directory_iterator(folder_.path())) all.push_back(entry.path().filename());
        return all;
    }

    const Place resident_{{}, false};
    const Place streaming_{{"--device-memory", "24M"}, true};
    const Place tensor_{{"--devices", "cpu,cpu", "--split", "tensor"}, false};
    const Place layers_{{"--devices", "cpu,cpu", "--split", "layers"}, true};
    TemporaryFolder folder_;
};

TEST_F(PromptSession, GenerateGoesOnWhereItWas) {
    for (const Place& place : {resident_, streaming_, tensor_, layers_}) {
        const std::string s = file("s");
        const Arguments command = generate(place);
        const std::string expected = run_program(command).out;
        const ProgramResult first = cut_off(command + Arguments{"--session", s}, "s", s, SIGINT);
        ASSERT_EQ(first.code, 130) << first.err;
        EXPECT_EQ(first.out, "");
        const std::int64_t n_kept = kept_tokens(first.err);
        EXPECT_THAT(first.err, HasSubstr("the session keeps "));
        EXPECT_GT(n_kept, 0) << first.err;
        EXPECT_EQ(fs::exists(s + ".prompt"), place.by_layer);
        // Killed before anything else is saved, nothing of that is lost.
        const ProgramResult killed =
            cut_off_after(command + Arguments{"--session", s}, s, std::chrono::milliseconds(5), SIGKILL, "");
        EXPECT_EQ(killed.code, -1 - SIGKILL);
        if (place.by_layer) {
            const fs::perms mode = fs::status(s + ".prompt").permissions();
            EXPECT_EQ(mode, fs::perms::owner_read | fs::perms::owner_write);
            const ProgramResult shown = run_program({"inspect", s});
            EXPECT_EQ(shown.code, 0) << shown.err;
            EXPECT_THAT(shown.out, HasSubstr(s + ".prompt: hidden states of the prompt's tokens from 0 on"));
        }
        // Layers are not part of the text: where everything is resident it goes on, too.
        const Arguments rest{"generate", "--no-config", "--session", s, "--stats", file("stats"), "--draft", "none"};
        const ProgramResult last = run_program(place.by_layer ? rest : rest + place.options);
        EXPECT_EQ(last.code, 0) << last.err;
        EXPECT_EQ(last.out, expected);
        const json figures = json::parse(file_text(file("stats")));
        EXPECT_GE(figures["prompt"]["resumed_tokens"].get<std::int64_t>(), n_kept) << last.err;
        EXPECT_THAT(last.err, HasSubstr("going on with " + s));
        EXPECT_FALSE(fs::exists(s + ".prompt"));
        fs::remove(s);
    }
}

TEST_F(PromptSession, ChatGoesOnWhereItWas) {
    for (const Place& place : {resident_, streaming_}) {
        const std::string s = file("s");
        const Arguments command = chat(place);
        ProgramRun whole;
        whole.arguments = command;
        whole.input = long_message() + "\n";
        const ProgramResult expected = run_program(whole);
        ASSERT_EQ(expected.code, 0) << expected.err;
        const ProgramResult first =
            cut_off(command + Arguments{"--session", s}, "s", s + ".kv", SIGTERM, long_message() + "\n");
        ASSERT_EQ(first.code, 143) << first.err;
        EXPECT_THAT(first.err, HasSubstr("the message is kept without an answer; "));
        EXPECT_THAT(first.err, HasSubstr(" prompt tokens are kept, /regen goes on there"));
        EXPECT_EQ(json::parse(file_text(s))["messages"].size(), 2U);
        const ProgramResult shown = run_program({"inspect", s});
        EXPECT_THAT(shown.out, HasSubstr("1 exchange, the last one without an answer"));
        EXPECT_THAT(shown.out, HasSubstr("kv cache"));
        ProgramRun rest;
        rest.arguments = command + Arguments{"--session", s, "--stats", file("stats")};
        rest.input = "/regen\n";
        const ProgramResult last = run_program(rest);
        EXPECT_EQ(last.code, 0) << last.err;
        EXPECT_EQ(last.out, expected.out);
        EXPECT_GT(json::parse(file_text(file("stats")))["prompt"]["resumed_tokens"], 0);
        EXPECT_THAT(last.err, HasSubstr("going on within the prompt: "));
        EXPECT_FALSE(fs::exists(s + ".kv"));
        EXPECT_FALSE(fs::exists(s + ".kv.prompt"));
        fs::remove(s);
    }
}

TEST_F(PromptSession, WhatAChatKeptOfAnotherPromptIsNotRead) {
    const std::string s = file("s");
    const Arguments command = chat(resident_) + Arguments{"--session", s};
    ASSERT_EQ(cut_off(command, "s", s + ".kv", SIGTERM, long_message() + "\n").code, 143);
    ASSERT_TRUE(fs::exists(s + ".kv"));
    fs::copy_file(s + ".kv", file("kv"));
    fs::copy_file(s, file("chat"));
    ProgramRun run;
    run.arguments = command + Arguments{"--stats", file("stats")};
    const auto chat_on = [&](const std::string& input) {
        run.input = input;
        const ProgramResult result = run_program(run);
        EXPECT_EQ(result.code, 0) << result.err;
        EXPECT_FALSE(fs::exists(s + ".kv"));
        EXPECT_EQ(json::parse(file_text(file("stats")))["prompt"]["resumed_tokens"], 0);
        return result.err;
    };
    EXPECT_THAT(chat_on("A" + long_message() + "\n"),
                HasSubstr(".kv: it is of another prompt; the prompt begins anew"));
    // The chat was answered, and the program killed before it removed the file.
    fs::copy_file(file("kv"), s + ".kv");
    EXPECT_THAT(chat_on("And then\n"), Not(HasSubstr(".kv")));
    // With another model.
    fs::copy_file(file("kv"), s + ".kv");
    fs::copy_file(file("chat"), s, fs::copy_options::overwrite_existing);
    run.arguments = command + Arguments{"--stats", file("stats"), "-m", source_path("tools/demo_model/draft")};
    EXPECT_THAT(chat_on("/regen\n"), HasSubstr(".kv: it is of another model; the prompt begins anew"));
    // A session of generate that has the name stays as it is.
    run.arguments = command + Arguments{"--stats", file("stats")};
    fs::remove(s);
    ASSERT_EQ(run_program({"generate", "x", "-n", "2", "--session", s + ".kv"}).code, 0);
    const std::string before = file_text(s + ".kv");
    run.input = long_message() + "\n";
    EXPECT_EQ(run_program(run).code, 0);
    EXPECT_EQ(file_text(s + ".kv"), before);
}

TEST_F(PromptSession, WhatAKilledProgramLeftIsRemoved) {
    const std::string s = file("s");
    const Arguments command = generate(streaming_) + Arguments{"--session", s};
    ASSERT_EQ(cut_off(command, "s", s, SIGINT).code, 130);
    fs::copy_file(s + ".prompt", file("side"));
    ASSERT_EQ(run_program(command).code, 0);
    ASSERT_FALSE(fs::exists(s + ".prompt"));
    fs::copy_file(file("side"), s + ".prompt");
    folder_.write("s.1234567-0.part", "half a session");
    folder_.write("t.1234567-0.part", "of another file");
    EXPECT_EQ(run_program(command).code, 0);
    EXPECT_FALSE(fs::exists(s + ".prompt"));
    EXPECT_FALSE(fs::exists(file("s.1234567-0.part")));
    EXPECT_TRUE(fs::exists(file("t.1234567-0.part")));
    // A side file without its session, and one that is no side file.
    fs::remove(s);
    fs::copy_file(file("side"), s + ".prompt");
    const ProgramResult fresh = run_program(command);
    EXPECT_EQ(fresh.code, 0);
    EXPECT_THAT(fresh.err, Not(HasSubstr("anew")));
    EXPECT_FALSE(fs::exists(s + ".prompt"));
    fs::remove(s);
    folder_.write("s.prompt", "a prompt of the user");
    EXPECT_THAT(run_program(command).err, HasSubstr("if the prompt is interrupted, it begins anew: "));
    EXPECT_EQ(file_text(s + ".prompt"), "a prompt of the user");
}

TEST_F(PromptSession, WhatTheLimitDoesNotHoldIsSaidAtTheStart) {
    const std::string s = file("s");
    const ProgramResult result =
        run_program(generate(streaming_) + Arguments{"--session", s, "--session-limit", "1M", "-n", "2"});
    EXPECT_EQ(result.code, 0);
    EXPECT_THAT(result.err, HasSubstr("if the prompt is interrupted, it begins anew: that takes "));
    EXPECT_THAT(result.err, HasSubstr("more than --session-limit 1"));
    ProgramRun run;
    run.arguments = chat(streaming_) + Arguments{"--session", file("c"), "--session-limit", "1M"};
    run.input = long_message() + "\n";
    EXPECT_THAT(run_program(run).err, HasSubstr("if the prompt is interrupted, it begins anew: that takes "));
    EXPECT_EQ(run_program({"chat", "--session-limit", "1M"}).code, 2);
    run.arguments = chat(resident_) + Arguments{"--session", file("r"), "--session-limit", "1M"};
    EXPECT_THAT(run_program(run).err, HasSubstr("if the prompt is interrupted, it begins anew after "));
}

TEST_F(PromptSession, AChatKeepsItsKvType) {
    const std::string s = file("s");
    const auto answer = [&](const Arguments& more) {
        ProgramRun run;
        run.arguments = Arguments{"chat", "--no-config", "--seed", "3", "-n", "3", "--session", s} + more;
        run.input = "Once upon a time\n";
        run.environment = {{"SLIPSTREAM_KV_TYPE", "f32"}};
        return run_program(run);
    };
    ASSERT_EQ(answer({"--kv-type", "q8"}).code, 0);
    const auto kept = [&] { return json::parse(file_text(s))["kv_type"]; };
    EXPECT_EQ(kept(), "q8");
    EXPECT_EQ(answer({}).code, 0) << "the environment gives defaults";
    EXPECT_EQ(answer({"--kv-type", "auto"}).code, 0);
    EXPECT_EQ(kept(), "q8");
    const ProgramResult refused = answer({"--kv-type", "f16"});
    EXPECT_EQ(refused.code, 1);
    EXPECT_THAT(refused.err, HasSubstr("--kv-type f16: the session " + s + " was begun with q8"));
    // Of an older version, without a type.
    json old = json::parse(file_text(s));
    old.erase("kv_type");
    std::ofstream(s) << old;
    EXPECT_EQ(answer({"--kv-type", "f16"}).code, 0);
    EXPECT_EQ(kept(), "f16");
}

}  // namespace
}  // namespace slipstream::tools
