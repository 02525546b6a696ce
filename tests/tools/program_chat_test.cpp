// chat from a pipe: answers are those of the whole prompt, whatever the cache kept of it; sessions, commands, exit
// codes.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Arguments = std::vector<std::string>;

constexpr const char* kNoStop = "no text has this";  // then a turn of a tale ends at --max-tokens alone

ProgramResult chat(const std::string& input, Arguments more) {
    ProgramRun run;
    run.arguments = {"chat", "--no-config"};
    run.arguments.insert(run.arguments.end(), more.begin(), more.end());
    run.input = input;
    return run_program(run);
}

std::string generate(const std::string& prompt, Arguments more) {
    Arguments arguments{"generate", "--no-config", "--prompt", prompt, "--draft", "none", "-q"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
}

std::vector<std::string> messages_in(const std::string& path) {
    std::vector<std::string> texts;
    const json session = json::parse(file_text(path));
    for (const json& message : session.at("messages")) texts.push_back(message.at("content"));
    return texts;
}

class Chat : public testing::Test {
protected:
    [[nodiscard]] std::string at(const char* name) const { return (folder_.path() / name).string(); }
    TemporaryFolder folder_;
};

// {how tokens are drawn}, {where KV and weights lie}
using Case = std::pair<Arguments, Arguments>;
class ChatAnswers : public Chat, public testing::WithParamInterface<Case> {};

TEST_P(ChatAnswers, AreThoseOfTheWholePrompt) {
    const auto& [drawing, placing] = GetParam();
    Arguments common{"--max-tokens", "24", "--ctx", "1024", "--stop", kNoStop};
    common.insert(common.end(), drawing.begin(), drawing.end());
    Arguments arguments = common;
    arguments.insert(arguments.end(), placing.begin(), placing.end());
    arguments.insert(arguments.end(), {"--session", at("chat.json")});
    const ProgramResult result =
        chat("Once upon a time there was a king\nThe fox said:\n/undo\nThe wolf said:\n/set max-tokens 25\nThen they\n",
             arguments);
    ASSERT_EQ(result.code, 0) << result.err;
    const std::vector<std::string> messages = messages_in(at("chat.json"));
    ASSERT_EQ(messages.size(), 6U);
    std::string whole;
    for (std::size_t i = 0; i < messages.size(); i += 2) {
        whole += (i > 0 ? "\n\n" : "") + messages[i];
        Arguments plain = common;
        if (i == 4) plain[1] = "25";
        EXPECT_EQ(messages[i + 1], generate(whole, plain)) << whole;
        whole += messages[i + 1];
    }
    EXPECT_THAT(result.err, testing::Not(HasSubstr("prompt 8, 8 kept")));
    EXPECT_THAT(result.err, testing::ContainsRegex("prompt [0-9]+, [1-9][0-9]+ kept"));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ChatAnswers,
    testing::Values(Case{{"--temperature", "0"}, {}}, Case{{"--temperature", "0.8", "--seed", "11"}, {}},
                    Case{{"--temperature", "1", "--seed", "3", "--repeat-penalty", "1.2"}, {"--draft", "none"}},
                    Case{{"--temperature", "0.8", "--seed", "4"}, {"--device-memory", "20M", "--draft", "context"}}));

TEST_F(Chat, GoesThroughATemplate) {
    const ProgramResult result = chat("Once\nTwice\n", {"--template", "chatml", "--system", "Be brief", "--max-tokens",
                                                        "8", "--temperature", "0", "--session", at("chat.json"), "-q"});
    ASSERT_EQ(result.code, 0) << result.err;
    const std::vector<std::string> messages = messages_in(at("chat.json"));
    ASSERT_EQ(messages.size(), 4U);
    const Arguments plain{"--max-tokens", "8", "--temperature", "0"};
    std::string whole =
        "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\nOnce<|im_end|>\n<|im_start|>assistant\n";
    EXPECT_EQ(messages[1], generate(whole, plain));
    whole += messages[1] + "<|im_end|>\n<|im_start|>user\nTwice<|im_end|>\n<|im_start|>assistant\n";
    EXPECT_EQ(messages[3], generate(whole, plain));
    const std::string between = messages[1].ends_with('\n') ? "" : "\n";
    EXPECT_EQ(result.out, messages[1] + between + messages[3]);
    EXPECT_EQ(result.err, "");
}

// Opens a thought in the prompt, which the bundled model never closes.
constexpr const char* kThinking =
    "{% for m in messages %}[{{ m.role }}] {{ m.reasoning_content or '' }}{{ m.content }}\n{% endfor %}"
    "{% if enable_thinking is defined and not enable_thinking %}The fox{% else %}The wolf<think>\n{% endif %}";

TEST_F(Chat, ThoughtsGoToStderrAndIntoTheSession) {
    const std::string form = folder_.write("t.jinja", kThinking).string();
    const Arguments plain{"--max-tokens", "8", "--temperature", "0"};
    Arguments arguments{"--template", form, "--session", at("chat.json")};
    arguments.insert(arguments.end(), plain.begin(), plain.end());
    const ProgramResult result = chat("Once\n/set think off\n/set think\nTwice\n/set think maybe\n", arguments);
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr("/set think: on, off or auto expected, found 'maybe'"));
    const json session = json::parse(file_text(at("chat.json")));
    EXPECT_EQ(session.at("settings").at("think"), false);
    const json& messages = session.at("messages");
    ASSERT_EQ(messages.size(), 4U);
    EXPECT_EQ(messages[1].at("content"), "");
    const std::string thought = messages[1].at("thought");
    std::string expected = generate("[user] Once\nThe wolf<think>\n", plain);
    expected.erase(0, expected.find_first_not_of(" \n"));
    EXPECT_EQ(thought, expected);
    EXPECT_THAT(result.err, HasSubstr(thought));
    // The template has said what stays of the thought.
    EXPECT_EQ(messages[3].at("content"),
              generate("[user] Once\n[assistant] " + thought + "\n[user] Twice\nThe fox", plain));
    EXPECT_FALSE(messages[3].contains("thought"));
    EXPECT_EQ(result.out, messages[3].at("content"));

    // The session goes on with both, and its setting. An answer that is a thought is an answer.
    const ProgramResult more = chat("/set think auto\n/context\n", {"--template", form, "--session", at("chat.json")});
    EXPECT_EQ(more.code, 0) << more.err;
    EXPECT_THAT(more.err, HasSubstr("2 exchanges"));
    const json after = json::parse(file_text(at("chat.json")));
    EXPECT_EQ(after.at("messages"), messages);
    EXPECT_FALSE(after.at("settings").contains("think"));
    const ProgramResult quiet = chat("Once\n", {"--template", form, "--max-tokens", "8", "-q"});
    EXPECT_EQ(quiet.code, 0);
    EXPECT_EQ(quiet.out + quiet.err, "");
}

TEST_F(Chat, ThinkingIsSetOnlyWhereTheTemplateReadsIt) {
    for (const char* form : {"chatml", ""}) {
        Arguments arguments{"--max-tokens", "2"};
        if (*form != '\0') arguments.insert(arguments.end(), {"--template", form});
        const ProgramResult result = chat("/set think on\n", arguments);
        EXPECT_EQ(result.code, 1);
        EXPECT_THAT(result.err, HasSubstr("/set think: the chat template does not read enable_thinking or thinking"));
    }
}

TEST_F(Chat, ThinkingGoesToTheVariableThatTheTemplateReads) {
    const std::string form =
        folder_.write("granite.jinja", "{% if thinking %}The wolf{% else %}The fox{% endif %}").string();
    const Arguments plain{"--max-tokens", "8", "--temperature", "0"};
    Arguments arguments{"--template", form, "--session", at("chat.json")};
    arguments.insert(arguments.end(), plain.begin(), plain.end());
    const ProgramResult result = chat("Once\n/set think on\nTwice\n", arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    const json messages = messages_in(at("chat.json"));
    EXPECT_EQ(messages[1], generate("The fox", plain));
    EXPECT_EQ(messages[3], generate("The wolf", plain));
}

TEST_F(Chat, RegenTakesTheNextSeedAndSaysIt) {
    const Arguments drawn{"--max-tokens", "12", "--stop", kNoStop, "--temperature", "1"};
    Arguments arguments = drawn;
    arguments.insert(arguments.end(), {"--seed", "41", "--session", at("chat.json")});
    const ProgramResult result = chat("Once upon\n/regen\n", arguments);
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("slipstream: seed 42\n"));
    Arguments plain = drawn;
    plain.insert(plain.end(), {"--seed", "42"});
    EXPECT_EQ(messages_in(at("chat.json"))[1], generate("Once upon", plain));
    EXPECT_EQ(json::parse(file_text(at("chat.json")))["settings"]["seed"], 42);
}

TEST_F(Chat, ATurnOfATaleIsAParagraph) {
    const ProgramResult result =
        chat("The king said to his son:\n\n", {"--seed", "3", "-q", "--session", at("chat.json")});
    ASSERT_EQ(result.code, 0) << result.err;
    const std::vector<std::string> messages = messages_in(at("chat.json"));
    ASSERT_EQ(messages.size(), 4U);
    EXPECT_EQ(messages[2], "");  // an empty line: go on
    for (const std::size_t answer : {1U, 3U}) {
        const std::size_t first = messages[answer].find_first_not_of('\n');
        ASSERT_NE(first, std::string::npos);
        EXPECT_EQ(messages[answer].find("\n\n", first), std::string::npos) << messages[answer];
    }
}

TEST_F(Chat, ASessionGoesOnAsOneChat) {
    const Arguments drawn{"--max-tokens", "10", "--temperature", "0.9", "--seed", "8", "--stop", kNoStop};
    const auto with_session = [&](const char* name, Arguments arguments) {
        arguments.insert(arguments.end(), {"--session", at(name)});
        return arguments;
    };
    ASSERT_EQ(chat("Once\nTwice\n", with_session("one.json", drawn)).code, 0);
    ASSERT_EQ(chat("Once\n", with_session("two.json", drawn)).code, 0);
    // Its settings are in the file.
    const ProgramResult second = chat("Twice\n", with_session("two.json", {}));
    ASSERT_EQ(second.code, 0) << second.err;
    EXPECT_THAT(second.err, HasSubstr("1 exchange"));
    EXPECT_EQ(messages_in(at("one.json")), messages_in(at("two.json")));
    EXPECT_EQ(file_text(at("one.json")), file_text(at("two.json")));
    // But for those that are given anew.
    ASSERT_EQ(chat("/set seed\n", with_session("two.json", {"--seed", "9"})).code, 0);
    EXPECT_THAT(chat("/set seed\n", with_session("two.json", {"--seed", "9"})).err, HasSubstr("  seed 9\n"));
}

// What a killed program leaves is a message with an empty answer. The model never reads it as an answer of its own.
TEST_F(Chat, AMessageWithoutAnAnswerIsLeftOutOrAnswered) {
    const Arguments options{"--max-tokens", "12", "--temperature", "0", "--stop", kNoStop, "--session", at("s.json")};
    const auto saved = [&] {
        ASSERT_EQ(chat("The wolf said:\n", options).code, 0);
        json session = json::parse(file_text(at("s.json")));
        session["messages"].back()["content"] = "";
        std::ofstream(at("s.json")) << session;
    };
    const ProgramResult fresh = chat("Once upon a time\n", {options.begin(), options.end() - 2});
    saved();
    const ProgramResult left_out = chat("Once upon a time\n", options);
    EXPECT_EQ(left_out.out, fresh.out);
    EXPECT_THAT(left_out.err, HasSubstr("had no answer and is left out"));
    EXPECT_EQ(messages_in(at("s.json")).size(), 2U);
    std::filesystem::remove(at("s.json"));
    saved();
    EXPECT_EQ(chat("/regen\n", options).code, 0);
    EXPECT_EQ(messages_in(at("s.json")).front(), "The wolf said:");
    EXPECT_NE(messages_in(at("s.json")).back(), "");
}

TEST_F(Chat, CrLfEndsALineAndIsNoPartOfIt) {
    const Arguments arguments{"--max-tokens", "2", "--session", at("chat.json")};
    const ProgramResult result = chat("one\r\n\"\"\"two\r\nthree\"\"\"\r\n/set max-tokens 3\r\nfour\r", arguments);
    ASSERT_EQ(result.code, 0) << result.err;
    const std::vector<std::string> messages = messages_in(at("chat.json"));
    ASSERT_EQ(messages.size(), 6U);
    EXPECT_EQ(messages[0], "one");
    EXPECT_EQ(messages[2], "two\nthree");
    EXPECT_EQ(messages[4], "four");
}

TEST_F(Chat, SavesAndLoads) {
    const Arguments drawn{"--max-tokens", "6", "--temperature", "0", "--stop", kNoStop};
    ASSERT_EQ(chat("Once\n/save " + at("kept.json") + "\nTwice\n", drawn).code, 0);
    EXPECT_EQ(messages_in(at("kept.json")).size(), 2U);
    Arguments with_session = drawn;
    with_session.insert(with_session.end(), {"--session", at("chat.json")});
    ASSERT_EQ(chat("/load " + at("kept.json") + "\n", with_session).code, 0);
    EXPECT_EQ(messages_in(at("chat.json")), messages_in(at("kept.json")));
    const std::string file = folder_.write("message", "//two\nlines\n").string();
    ASSERT_EQ(chat("/clear\n/read " + file + "\n//slash\n\"\"\"\na\n\nb\n\"\"\"\n", with_session).code, 0);
    const std::vector<std::string> messages = messages_in(at("chat.json"));
    ASSERT_EQ(messages.size(), 6U);
    EXPECT_EQ(messages[0], "//two\nlines\n");
    EXPECT_EQ(messages[2], "/slash");
    EXPECT_EQ(messages[4], "a\n\nb");
}

// A file may come from anybody; what the user types may spell control tokens.
TEST_F(Chat, ControlTokensInTheSystemTextOfAFileAreText) {
    const Arguments options{"--max-tokens", "2", "--session", at("s.json")};
    const Arguments typed{"--max-tokens", "2", "--session", at("s.json"), "--system", "Be</s> kind"};
    const auto note = HasSubstr("s.json: the control tokens that its system text spells are read as plain text");
    EXPECT_THAT(chat("Once\n", typed).err, Not(note));
    EXPECT_THAT(chat("", options).err, note);
    EXPECT_THAT(chat("", typed).err, Not(note));
    EXPECT_THAT(chat("/load " + at("s.json") + "\n", {"--max-tokens", "2"}).err, note);
    ASSERT_EQ(chat("/system kind\n", options).code, 0);
    EXPECT_THAT(chat("", options).err, Not(note));
}

TEST_F(Chat, WhatCannotBeServedIsSaidAndEndsIt) {
    const auto failing = [&](const std::string& input, Arguments more = {}) {
        const ProgramResult result = chat(input, std::move(more));
        EXPECT_EQ(result.code, 1) << input << result.err;
        EXPECT_EQ(result.out, "") << input;
        return result.err;
    };
    EXPECT_THAT(failing("/sat seed 4\n"), HasSubstr("unknown command /sat; did you mean /set?"));
    EXPECT_THAT(failing("/set tempature 4\n"), HasSubstr("did you mean temperature?"));
    EXPECT_THAT(failing("/set top-p 4\n"), HasSubstr("/set top-p: a number from 0 to 1 expected"));
    EXPECT_THAT(failing("/set logit-bias 999999=5\n", {"--session", at("bias.json")}),
                HasSubstr("999999 is not a token of this model"));
    EXPECT_EQ(chat("", {"--session", at("bias.json")}).code, 0) << "it was kept";
    EXPECT_THAT(failing("/undo\n"), HasSubstr("no message to take back"));
    EXPECT_THAT(failing("/regen\n"), HasSubstr("no message to answer again"));
    EXPECT_THAT(failing("/save\n"), HasSubstr("/save takes the name of a file"));
    EXPECT_THAT(failing("/load " + at("none") + "\n"), HasSubstr("none"));
    EXPECT_THAT(failing("\"\"\"a\nb\n"), HasSubstr("has no end"));
    EXPECT_THAT(failing(std::string(400, 'q') + "\n", {"--ctx", "64"}), HasSubstr("the context is full"));
    const std::string broken = folder_.write("broken.json", "{\"format\": \"slipstream chat\"").string();
    EXPECT_THAT(failing("Once\n", {"--session", broken}), HasSubstr("broken.json"));
    EXPECT_EQ(file_text(broken), "{\"format\": \"slipstream chat\"");  // nothing is overwritten
    EXPECT_EQ(chat("", {"--template-arg", "a=1"}).code, 2);
    EXPECT_EQ(chat("", {"--temperature", "-1"}).code, 2);
    EXPECT_EQ(chat("", {}).code, 0);
}

TEST_F(Chat, EndsStayIgnoredWhateverBiasIsSet) {
    const Arguments tale{"--seed", "4", "--max-tokens", "40", "--stop", kNoStop, "--session", at("chat.json")};
    Arguments begun = tale;
    begun.emplace_back("--ignore-eos");
    ASSERT_EQ(chat("/set logit-bias 2=1000\n", begun).code, 0);
    const json settings = json::parse(file_text(at("chat.json"))).at("settings");
    EXPECT_EQ(settings.at("ignore-eos"), true);
    EXPECT_EQ(settings.at("logit-bias"), "2=1000");
    EXPECT_THAT(chat("Once\n", tale).err, HasSubstr(" 40 tokens"));
    EXPECT_THAT(chat("/set ignore-eos off\nOnce\n", tale).err, HasSubstr(" 1 token ")) << "2 is the end token";
}

TEST_F(Chat, AnInterruptKeepsWhatWasSaid) {
    for (const int signal : {SIGINT, SIGTERM}) {
        ProgramRun run;
        run.arguments = {"chat", "--seed", "3", "--stop", kNoStop, "--session", at("chat.json")};
        run.input = "Once upon a time\nnever reached\n";
        RunningProgram program(run);
        program.wait_for_output(40);
        program.send(signal);
        const ProgramResult result = program.finish();
        EXPECT_EQ(result.code, 128 + signal);
        const std::vector<std::string> messages = messages_in(at("chat.json"));
        ASSERT_EQ(messages.size(), 2U);
        EXPECT_EQ(messages[1], result.out);
        std::filesystem::remove(at("chat.json"));
    }
}

TEST_F(Chat, AnAnswerThatCannotBeWrittenIsKept) {
    const std::string tables = at("tables");
    ProgramRun run;
    run.arguments = {"chat",          "--no-config", "--seed",    "3",        "--session",
                     at("chat.json"), "--draft",     "recycling", "--tables", tables};
    run.input = "Once upon a time\n";
    run.stdout_path = "/dev/full";
    const ProgramResult result = run_program(run);
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr("No space left"));
    const std::vector<std::string> messages = messages_in(at("chat.json"));
    ASSERT_EQ(messages.size(), 2U);
    EXPECT_NE(messages[1], "");
    EXPECT_TRUE(std::filesystem::exists(tables)) << "what was learnt so far";
}

TEST_F(Chat, FiguresAreSums) {
    const ProgramResult result = chat("Once\nTwice\n/stats\n", {"--max-tokens", "7", "--temperature", "0", "--stop",
                                                                kNoStop, "--stats", at("stats.json")});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("  2 answers, 14 tokens ("));
    const json figures = json::parse(file_text(at("stats.json")));
    EXPECT_EQ(figures["generated_tokens"], 14);
    EXPECT_EQ(figures["text_bytes"].get<std::size_t>() + 1, result.out.size());  // and the newline between
}

}  // namespace
}  // namespace slipstream::tools
