// Two chats on one session, and files that a chat may not replace: one line, and nothing is lost.
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/chat_terminal.h"
#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Arguments = std::vector<std::string>;

constexpr const char* kTaken = "another program has this session open; wait for its end, or name another";

ProgramRun short_chat(const std::string& input, const Arguments& more) {
    ProgramRun run;
    run.arguments = {"chat", "--no-config", "--draft", "none", "--temperature", "0", "--max-tokens", "4"};
    run.arguments.insert(run.arguments.end(), more.begin(), more.end());
    run.input = input;
    return run;
}
ProgramResult chat(const std::string& input, const Arguments& more) {
    return run_program(short_chat(input, more));
}
std::size_t n_messages(const std::string& path) {
    return nlohmann::json::parse(file_text(path)).at("messages").size();
}

TEST(ChatLock, ASecondChatOnASessionIsToldAndChangesNothing) {
    auto first =
        std::make_unique<ChatTerminal>(Arguments{"--draft", "none", "--temperature", "0", "--max-tokens", "4"}, 120);
    const std::string session = first->session().string();
    const auto expect_refused = [&](const char* when) {
        const std::string before = file_text(session);
        const ProgramResult second = chat("Twice\n", {"--session", session});
        EXPECT_EQ(second.code, 1) << when;
        EXPECT_EQ(second.err, "slipstream: " + session + ": " + kTaken + "\n") << when;
        EXPECT_EQ(second.out, "") << when;
        EXPECT_EQ(file_text(session), before) << when;
    };
    expect_refused("before its first message");
    first->send("Once");
    expect_refused("after the file was replaced");
    EXPECT_THAT(chat("Twice\n/save " + session + "\n", {}).err, HasSubstr(kTaken));
    EXPECT_EQ(chat("/load " + session + "\n/undo\n", {}).code, 0) << "reading is for all";
    EXPECT_THAT(run_program({"generate", "x", "-n", "1", "--session", session}).err, HasSubstr(kTaken));
    first->send("Again");
    EXPECT_EQ(first->messages().size(), 4U);
    // A chat that is killed leaves no lock.
    first->send_signal(SIGKILL);
    EXPECT_EQ(first->finish(), -1 - SIGKILL);
    EXPECT_EQ(chat("Twice\n", {"--session", session}).code, 0);
    EXPECT_EQ(n_messages(session), 6U);
}

TEST(ChatLock, OfManyThatBeginAtOnceEachMessageIsKeptOrRefused) {
    const TemporaryFolder folder;
    const std::string session = (folder.path() / "chat").string();
    std::vector<std::unique_ptr<RunningProgram>> chats;
    for (int i = 0; i < 4; ++i)
        chats.push_back(std::make_unique<RunningProgram>(short_chat("Once\n", {"--session", session})));
    std::size_t n_kept = 0;
    for (const auto& running : chats) {
        const ProgramResult result = running->finish();
        n_kept += result.code == 0 ? 1 : 0;
        if (result.code != 0) {
            EXPECT_THAT(result.err, HasSubstr(kTaken));
        }
    }
    EXPECT_GE(n_kept, 1U);
    EXPECT_EQ(n_messages(session), 2 * n_kept);
}

TEST(ChatLock, SaveReplacesNoFileThatIsNoChat) {
    const TemporaryFolder folder;
    const fs::path model = folder.path() / "model";
    fs::copy(source_path("tools/demo_model/target"), model);
    const auto expect_kept = [&](const fs::path& file, const Arguments& more, const char* reason) {
        const std::string before = file_text(file.string());
        const ProgramResult result = chat("Once\n/save " + file.string() + "\n", more);
        EXPECT_EQ(result.code, 1) << file;
        EXPECT_THAT(result.err, HasSubstr(reason)) << file;
        EXPECT_TRUE(file_text(file.string()) == before) << file;
    };
    const Arguments with_model{"-m", model.string()};
    for (const char* name : {"model.safetensors", "config.json", "tokenizer.model"})
        expect_kept(model / name, with_model, "this is a file of the model");
    fs::create_symlink(model / "config.json", folder.path() / "link");
    expect_kept(folder.path() / "link", with_model, "this is a file of the model");
    // What --session refuses, /save refuses: a text, a session of generate, a damaged chat.
    expect_kept(folder.write("letter.txt", "Dear all\n"), {}, "letter.txt");
    expect_kept(folder.write("other.json", "{}"), {}, "this is not a saved chat");
    expect_kept(folder.write("cut.json", "{\"format\": \"slipstream chat\""), {}, "cut.json");
    const std::string generated = (folder.path() / "text.session").string();
    ASSERT_EQ(run_program({"generate", "x", "-n", "3", "--session", generated}).code, 0);
    expect_kept(generated, {}, "text.session");
    // And files that the same chat reads or writes.
    const fs::path form = folder.write("form.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
    expect_kept(form, {"--template", form.string()}, "--template and /save name the same file");
    const std::string log = folder.write("log", "").string();
    EXPECT_THAT(chat("/save " + log + "\n", {"--log-file", log}).err, HasSubstr("--log-file and /save"));
    EXPECT_THAT(file_text(log), HasSubstr("name the same file"));
    // A chat is replaced, and a file is made.
    const std::string saved = (folder.path() / "saved.json").string();
    EXPECT_EQ(chat("Once\n/save " + saved + "\n", {}).code, 0);
    EXPECT_EQ(chat("Once\nTwice\n/save " + saved + "\n", {}).code, 0);
    EXPECT_EQ(n_messages(saved), 4U);
    EXPECT_EQ(chat("Once\n/save " + saved + "\n/save\n", {"--session", saved}).code, 0) << "its own";
    EXPECT_EQ(n_messages(saved), 6U);
}

}  // namespace
}  // namespace slipstream::tools
