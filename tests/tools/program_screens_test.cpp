// What the principal commands look like on terminals of 80 and of 120 columns, against screens that were recorded
// (tests/golden/screens; SLIPSTREAM_RECORD_SCREENS=1 writes them anew). Figures that a clock made are #.
#include <cstdlib>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/chat_terminal.h"
#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"
#include "tests/tools/terminal.h"

namespace slipstream::tools {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

constexpr const char* kLongName = "a-model-whose-name-says-its-size-its-tuning-and-how-it-is-quantised-Q4_K_M.gguf";

std::size_t letters_of(const std::string& line) {
    return static_cast<std::size_t>(
        std::ranges::count_if(line, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
        text.replace(at, from.size(), to);
}

void expect_screen(const std::vector<std::string>& lines, const std::string& name, int columns) {
    std::string screen;
    for (const std::string& line : lines) screen += line + "\n";
    const std::string file = source_path(fmt::format("tests/golden/screens/{}.{}.txt", name, columns));
    if (std::getenv("SLIPSTREAM_RECORD_SCREENS") != nullptr) std::ofstream(file) << screen;
    EXPECT_EQ(screen, file_text(file)) << file;
}

// A folder to stand in, in which files have short names that are the same everywhere, and a terminal.
class Screens : public testing::TestWithParam<int> {
protected:
    Screens() {
        fs::copy(source_path("tools/demo_model/target"), folder_.path() / "model");
        folder_.write(kLongName, "none");
        folder_.write("bad\x1b[2J.gguf", "none");
    }

    std::vector<std::string> screen(const Arguments& arguments) const {
        Terminal terminal(GetParam());
        ProgramRun run;
        run.arguments = arguments;
        run.environment = {{"TERM", "xterm"}, {"NO_COLOR", "1"}, {"SLIPSTREAM_MODELS", "."}};
        run.terminal = terminal.program_end();
        run.shell = fmt::format("cd '{}'; \"$0\" \"$@\"", folder_.path().string());
        RunningProgram program(run);
        terminal.take_all();
        static_cast<void>(program.finish());
        std::string bytes = terminal.bytes();
        replace_all(bytes, source_path(""), "{source}/");
        std::vector<std::string> lines = screen_lines(bytes, GetParam(), QuoteWidth::One);
        while (!lines.empty() && lines.back().empty()) lines.pop_back();
        return lines;
    }
    void expect_recorded(const Arguments& arguments, const std::string& name) const {
        expect_screen(screen(arguments), name, GetParam());
    }

    TemporaryFolder folder_;
};

TEST_P(Screens, OfHelp) {
    expect_recorded({"help"}, "help");
    expect_recorded({"help", "chat"}, "help_chat");
    expect_recorded({"help", "plan"}, "help_plan");
}

TEST_P(Screens, OfModelsAndOneOfThem) {
    expect_recorded({"models"}, "models");
    expect_recorded({"inspect", "model"}, "inspect");
}

TEST_P(Screens, OfPlans) {
    expect_recorded({"plan", "--profile", "1x4090", "--shape", "llama-70b", "--quant", "Q4_K_M"}, "plan");
    expect_recorded({"plan", "--profile", "2x4090", "--shape", "llama2-13b-128k", "--ctx", "130304"}, "plan_two");
}

TEST_P(Screens, OfBench) {
    const Arguments arguments{"bench", "--no-config", "-m", "model",   "-p",      "Once upon a time", "-n",
                              "8",     "-t",          "1",  "--draft", "context", "--repeat",         "1"};
    std::vector<std::string> lines = screen(arguments);
    // The machine and the build stand before.
    const auto title =
        std::ranges::find_if(lines, [](const std::string& line) { return line.starts_with("prefill of"); });
    ASSERT_NE(title, lines.end());
    lines.erase(lines.begin(), title);
    for (std::string& line : lines) {
        EXPECT_LE(letters_of(line), static_cast<std::size_t>(GetParam()));
        line = std::regex_replace(line, std::regex("[0-9]+(\\.[0-9]+)?"), "#");
        line = std::regex_replace(line, std::regex(" +"), " ");
    }
    expect_screen(lines, "bench", GetParam());
}

TEST_P(Screens, OfControlCharacters) {
    const std::string ids = folder_.write("ids", "30 94 53 77").string();
    expect_recorded({"tokenize", "-m", "model", "--detokenize", "--file", "ids"}, "escapes");
    expect_recorded({"inspect", "no\x1b[2J\x07such.gguf"}, "escapes_error");
}

// A chat that goes on from a session shows its last exchange, wrapped and escaped.
TEST_P(Screens, OfAChatThatGoesOn) {
    const std::string session = (folder_.path() / "s.json").string();
    ProgramRun run;
    run.arguments = {"chat", "--no-config", "--session", session, "--draft", "none", "--max-tokens", "4"};
    run.input = "Tell me of the wolf.\n";
    ASSERT_EQ(run_program(run).code, 0);
    nlohmann::json json = nlohmann::json::parse(file_text(session));
    json["messages"][1]["content"] =
        "Once upon a time there was a wolf who lived in a house of straw, of sticks and of bricks, and nobody knew "
        "which "
        "of the three he would be found in.\x1b[2J He said so himself.";
    std::ofstream(session) << json.dump();
    ChatTerminal chat({"--session", session, "--draft", "none", "--temperature", "0"}, GetParam());
    chat.send("/undo");
    chat.send("/set temperature x");
    chat.type("/exit\r");
    EXPECT_EQ(chat.finish(), 0);
    std::string text = screen_text(chat.bytes());
    replace_all(text, session, "{session}");
    std::vector<std::string> lines;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        lines.push_back(text.substr(at, end - at));
        EXPECT_LE(letters_of(lines.back()), static_cast<std::size_t>(GetParam()));
        at = end + 1;
    }
    expect_screen(lines, "chat", GetParam());
}

INSTANTIATE_TEST_SUITE_P(Columns, Screens, testing::Values(80, 120), testing::PrintToStringParamName());

}  // namespace
}  // namespace slipstream::tools
