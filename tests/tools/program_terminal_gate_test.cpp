// Hostile text on each of its ways to a terminal: prompts, file names, files that are quoted in errors, options,
// settings, sessions, progress bars. Whatever it spells, the terminal gets no control sequence but those of the
// program, which are known by their shape.
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/text/utf8.h"
#include "tests/tools/chat_terminal.h"
#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"
#include "tests/tools/terminal.h"

namespace slipstream::tools {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;
using Arguments = std::vector<std::string>;

// A title, the clipboard, another screen, a colour, a cursor, a device control string, C1 as UTF-8, and C0. None of it
// has the shape of what the program itself sends.
constexpr std::string_view kHostile =
    "EVIL\x1b]0;title\x07\x1b]52;c;RVZJTA==\x07\x1b[?1049h\x1b[5m\x1b[8;1H\x1b"
    "c\x1bP+q\x1b\\\xc2\x9b"
    "5m\xc2\x90q\xc2\x9d"
    "0;t\xc2\x9c\x0b\x0c\x0e\x7f\x08rub\rover";
// As a file name or an option, which may hold any byte.
const std::string kName =
    "EVIL\x1b]0;title\x07\xc2\x9b"
    "5m\x1b[5m\xff\x9b"
    "5m\x7f\x08rub\rover";

std::string without_own_sequences(const std::string& bytes) {
    static const std::regex own("\x1b\\[(\\?2004[hl]|0m|2m|31m|[0-9]*[ACDGJKP@]|4[hl])");
    return std::regex_replace(bytes, own, "");
}

// `editing`: the line editor moves the cursor by backspaces, too, and rings the bell.
enum class Editing : bool { No, Yes };

void expect_harmless(const std::string& bytes, const std::string& way, Editing editing = Editing::No) {
    const std::string allowed = editing == Editing::Yes ? "\r\n\t\b\a" : "\r\n\t";
    const std::string rest = without_own_sequences(bytes);
    std::string_view left = rest;
    while (!left.empty()) {
        const Utf8Step step = next_utf8(left);
        ASSERT_EQ(step.kind, Utf8Kind::Complete) << way << ": no UTF-8 in " << testing::PrintToString(bytes);
        const char32_t code = code_point(left);
        ASSERT_TRUE(!is_control(code) || allowed.find(static_cast<char>(code)) != std::string::npos)
            << way << ": control character " << static_cast<std::uint32_t>(code) << " in "
            << testing::PrintToString(bytes);
        left.remove_prefix(step.length);
    }
    EXPECT_THAT(bytes, Not(HasSubstr("\rover"))) << way;
    EXPECT_THAT(bytes, Not(HasSubstr("\brub"))) << way;
    EXPECT_THAT(bytes, HasSubstr("EVIL")) << way << ": the text did not come this way";
}

class TerminalGate : public testing::Test {
protected:
    TerminalGate() {
        fs::copy(source_path("tools/demo_model/target"), folder_.path() / "model");
        fs::copy(source_path("tools/demo_model/target"), folder_.path() / kName);
    }
    [[nodiscard]] std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

    // What a terminal gets, of 100 columns. {tty} in an argument is its name.
    [[nodiscard]] std::string on_terminal(Arguments arguments,
                                          const std::map<std::string, std::string>& environment = {},
                                          std::string_view keys = {}) {
        Terminal terminal(100);
        terminal.type(keys);
        for (std::string& argument : arguments)
            if (argument == "{tty}") argument = terminal.program_end_name();
        ProgramRun run;
        run.arguments = std::move(arguments);
        run.environment = environment;
        run.environment.emplace("TERM", "xterm");
        run.terminal = terminal.program_end();
        run.shell = fmt::format("cd '{}'; \"$0\" \"$@\"", folder_.path().string());
        RunningProgram program(run);
        terminal.take_all();
        static_cast<void>(program.finish());
        return terminal.bytes();
    }
    void expect_harmless_run(const std::string& way, const Arguments& arguments,
                             const std::map<std::string, std::string>& environment = {}) {
        expect_harmless(on_terminal(arguments, environment), way);
    }

    TemporaryFolder folder_;
};

TEST_F(TerminalGate, PromptsAndText) {
    const std::string text(kHostile);
    folder_.write("text", text);
    expect_harmless_run("echo", {"generate", "-m", "model", "-p", text, "--echo", "-n", "1"});
    expect_harmless_run("output", {"generate", "-m", "model", "-p", text, "--echo", "-n", "1", "-o", "{tty}"});
    expect_harmless(on_terminal({"tokenize", "-m", "model", "--file", "text"}) + "EVIL", "pieces");
    expect_harmless_run("session", {"generate", "-m", "model", "-p", "Once", "-n", "1", "--session", kName, "-v"});
}

TEST_F(TerminalGate, NamesOfFilesAndModels) {
    expect_harmless_run("prompt file", {"generate", "-f", kName + "none"});
    expect_harmless_run("no model", {"generate", "-m", kName + "none", "-p", "Once"});
    expect_harmless_run("inspect", {"inspect", kName});
    expect_harmless_run("inspect as JSON", {"inspect", kName, "--json"});
    expect_harmless_run("plan", {"plan", "-m", kName, "-v"});
    expect_harmless_run("models", {"models"}, {{"SLIPSTREAM_MODELS", folder_.path().string()}});
    expect_harmless_run("tables", {"tables", "inspect", kName});
    expect_harmless_run("perplexity", {"perplexity", "-m", "model", "--file", kName + "none"});
    expect_harmless_run("bench", {"bench", "-m", "model", "--prompts", kName + "none"});
    expect_harmless_run("statistics", {"generate", "-m", kName, "-p", "Once", "-n", "1", "--stats", "-"});
    expect_harmless_run("statistics on the terminal by its name",
                        {"generate", "-m", kName, "-p", "Once", "-n", "1", "--stats", "{tty}"});
    expect_harmless_run("log", {"generate", "-m", kName, "-p", "Once", "-n", "1", "-v", "--log-file", "{tty}"});
}

TEST_F(TerminalGate, WhatErrorsQuote) {
    expect_harmless_run("subcommand", {kName});
    expect_harmless_run("option", {"generate", "--" + kName});
    expect_harmless_run("value", {"generate", "-p", "Once", "--temperature", kName});
    expect_harmless_run("environment", {"generate", "-p", "Once"}, {{"SLIPSTREAM_TEMPERATURE", kName}});
    folder_.write("key.toml", "\"" + std::string("EVIL\\u001b]0;t\\u0007\\u009b5m") + "\" = 1\n");
    folder_.write("value.toml", "temperature = \"EVIL\\u001b]0;t\\u0007\\u009b5m\"\n");
    folder_.write("broken.toml", kHostile);
    for (const char* file : {"key.toml", "value.toml", "broken.toml"})
        expect_harmless(on_terminal({"generate", "-p", "Once", "--config", file}) + "EVIL", file);
    folder_.write("template", "{% EVIL" + std::string(kHostile) + " %}");
    expect_harmless_run("template", {"generate", "-m", "model", "-p", "Once", "-n", "1", "--template", "template"});
    folder_.write("raising", "{{ raise_exception('" + std::string(kHostile) + "') }}");
    expect_harmless_run("template's error",
                        {"generate", "-m", "model", "-p", "Once", "-n", "1", "--template", "raising"});
    folder_.write("ids", kHostile);
    expect_harmless_run("ids", {"tokenize", "-m", "model", "--detokenize", "--file", "ids"});
    std::ifstream file(path("model/config.json"));
    nlohmann::json config = nlohmann::json::parse(file);
    config["architectures"] = {std::string(kHostile)};
    config["model_type"] = std::string(kHostile);
    fs::copy(path("model"), path("other"));
    folder_.write("other/config.json", config.dump());
    expect_harmless_run("a model's configuration", {"inspect", "other"});
}

TEST_F(TerminalGate, ProgressBars) {
    std::string text;
    for (int i = 0; i < 1000000; ++i) text += fmt::format("Once upon a time there were {} wolves.\n", i);
    folder_.write(kName + ".txt", text);
    const std::string bytes =
        on_terminal({"tables", "build", "--kind", "corpus", "-m", "model", "-o", "a.table", kName + ".txt"});
    EXPECT_THAT(bytes, HasSubstr("\r\x1b[Ktokenizing "));
    expect_harmless(bytes, "bar");
}

TEST_F(TerminalGate, Chat) {
    const std::string text(kHostile);
    nlohmann::json session{{"format", "slipstream chat"},
                           {"version", 1},
                           {"model", text},
                           {"system", text},
                           {"settings", {{"stop", {text}}}},
                           {"messages",
                            {{{"role", "user"}, {"content", text}},
                             {{"role", "assistant"}, {"content", text}},
                             {{"role", "user"}, {"content", text}},
                             {{"role", "assistant"}, {"content", text}}}}};
    const std::string file = folder_.write(kName, "").string() + ".json";
    std::ofstream(file) << session.dump();
    ChatTerminal chat({"--session", file, "--draft", "none", "--temperature", "0", "--max-tokens", "2", "-v"}, 100);
    std::size_t seen = 0;
    const auto expect_next = [&](const std::string& way) {
        expect_harmless(chat.bytes().substr(seen), way, Editing::Yes);
        seen = chat.bytes().size();
    };
    expect_next("greeting, last exchange");
    // C1 may be typed; what is pasted loses C0.
    const std::string typed =
        "EVIL\xc2\x9b"
        "5m\xc2\x9d"
        "0;t\xc2\x9c";
    for (const std::string& command :
         Arguments{"/system", "/set", "/set stop", "/set stop " + typed, "/set temperature " + typed, "/set " + typed,
                   "/" + typed, "/read " + typed, "/load " + typed, "/save", "/undo",
                   "\x1b[200~/read \x1b]0;" + typed + "\x1b[201~", "\x1b[A"}) {
        chat.send(command);
        expect_next(command);
    }
    for (const char* command : {"/context", "/stats", "/help"}) {
        chat.send(command);
        expect_harmless(chat.bytes().substr(seen) + "EVIL", command, Editing::Yes);
        seen = chat.bytes().size();
    }
    chat.type("/exit\r");
    EXPECT_EQ(chat.finish(), 0);
}

// The line editor's library reports names, too.
TEST_F(TerminalGate, WhatTheLineEditorReports) {
    const Arguments arguments{"chat", "-m", "model", "--draft", "none", "-q"};
    expect_harmless(on_terminal(arguments, {{"TERM", kName}}, "/exit\n"), "TERM", Editing::Yes);
    folder_.write("editrc",
                  "EVIL\xc2\x9b"
                  "5m\x1b]0;t\x07 x\n");
    const std::string bytes = on_terminal(arguments, {{"EDITRC", path("editrc")}}, "/exit\n");
    expect_harmless(bytes + "EVIL", "editrc", Editing::Yes);
}

// A pipe gets the bytes as they are.
TEST_F(TerminalGate, PipesAreNotTerminals) {
    const std::string text(kHostile);
    ProgramRun run;
    run.arguments = {"generate", "-m", path("model"), "-p", text, "--echo", "-n", "1", "-q"};
    EXPECT_THAT(run_program(run).out, testing::StartsWith(text));
    run.arguments = {"chat", "-m", path("model"), "--system", text};
    run.input = "/system\n";
    EXPECT_THAT(run_program(run).err, HasSubstr("  " + text + "\n"));
}

}  // namespace
}  // namespace slipstream::tools
