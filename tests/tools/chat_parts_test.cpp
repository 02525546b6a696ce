// The parts of chat that need no model: commands, settings, sessions as JSON, messages out of lines, history.
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/tools/temporary_folder.h"
#include "tools/base/closest_name.h"
#include "tools/base/usage_error.h"
#include "tools/chat/chat_commands.h"
#include "tools/chat/chat_file.h"
#include "tools/chat/chat_input.h"
#include "tools/chat/chat_session.h"
#include "tools/chat/chat_settings.h"
#include "tools/chat/line_history.h"

namespace slipstream::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <typename E, typename F>
std::string error_of(F&& act) {
    try {
        act();
    } catch (const E& error) {
        return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
}

TEST(ClosestName, FindsTheOneThatWasMeant) {
    const std::vector<std::string_view> names{"temperature", "top-k", "top-p", "seed", "undo"};
    EXPECT_EQ(closest_name("temprature", names), "temperature");
    EXPECT_EQ(closest_name("temp", names), "temperature");
    EXPECT_EQ(closest_name("sed", names), "seed");
    EXPECT_EQ(closest_name("udno", names), "undo");
    EXPECT_EQ(closest_name("xyzzy", names), "");
    EXPECT_EQ(closest_name("", names), "");
    EXPECT_EQ(closest_name("zz", names), "");  // all letters differ
}

TEST(ChatCommands, AreLinesWithASlash) {
    const auto save = parse_chat_command("/save  my file.json ");
    ASSERT_TRUE(save);
    EXPECT_EQ(save->command, ChatCommand::Save);
    EXPECT_EQ(save->argument, "my file.json");
    for (const char* leave : {"/exit", "/quit", "/bye"})
        EXPECT_EQ(parse_chat_command(leave)->command, ChatCommand::Exit);
    for (const char* message : {"hello", "", " /undo", "//undo", "/undo\nand more"})
        EXPECT_FALSE(parse_chat_command(message)) << message;
    EXPECT_EQ(message_of_line("//undo"), "/undo");
    EXPECT_EQ(message_of_line("// a\n// b"), "// a\n// b");
    EXPECT_THAT(error_of<UsageError>([] { static_cast<void>(parse_chat_command("/contxt")); }), HasSubstr("/context?"));
    EXPECT_THAT(error_of<UsageError>([] { static_cast<void>(parse_chat_command("/")); }), HasSubstr("/help"));
    for (const char* name : {"/help", "/stats", "/context", "/save", "/load", "/undo", "/regen", "/set", "/system",
                             "/read", "/clear", "/exit"})
        EXPECT_THAT(chat_help(), HasSubstr(name));
}

TEST(ChatSettings, FollowTheRulesOfTheOptions) {
    ChatSettings settings;
    change_setting(settings, "temperature", "0.5", "/set");
    change_setting(settings, "seed", "18446744073709551615", "/set");
    change_setting(settings, "max-tokens", "-1", "/set");
    change_setting(settings, "stop", "END\\nHERE", "/set");
    EXPECT_EQ(settings.sampling.temperature, 0.5);
    EXPECT_EQ(settings.sampling.seed, 18446744073709551615ULL);
    EXPECT_THAT(settings.text.stops, ElementsAre("END\nHERE"));
    EXPECT_EQ(describe_setting(settings, "stop"), "stop END\\nHERE");
    change_setting(settings, "stop", "none", "/set");
    EXPECT_TRUE(settings.text.stops.empty());
    EXPECT_EQ(describe_setting(settings, "temperature"), "temperature 0.5");
    EXPECT_THAT(error_of<UsageError>([&] { change_setting(settings, "top-p", "1.5", "/set top-p"); }),
                HasSubstr("/set top-p: a number from 0 to 1 expected"));
    EXPECT_THAT(error_of<UsageError>([&] { change_setting(settings, "topk", "1", "/set topk"); }), HasSubstr("top-k?"));
    EXPECT_EQ(settings.sampling.top_p, 0.95);
    change_setting(settings, "logit-bias", "2=1", "/set");
    change_setting(settings, "ignore-eos", "on", "/set");
    EXPECT_EQ(describe_setting(settings, "logit-bias"), "logit-bias 2=1") << "what the user said, and no more";
    change_setting(settings, "logit-bias", "none", "/set");
    EXPECT_EQ(describe_setting(settings, "ignore-eos"), "ignore-eos true");
    for (const char* value : {"on", "off", "auto"}) {
        change_setting(settings, "think", value, "/set");
        EXPECT_EQ(describe_setting(settings, "think"), std::string("think ") + value);
    }
    EXPECT_THAT(error_of<UsageError>([&] { change_setting(settings, "think", "1", "/set think"); }),
                HasSubstr("/set think: on, off or auto expected"));
    const std::uint64_t seed = settings.sampling.seed;
    change_setting(settings, "seed", "-1", "/set");
    EXPECT_NE(settings.sampling.seed, seed);
}

TEST(ChatSession, ComesBackAsItWas) {
    ChatSession session;
    session.model = "a model";
    session.system = "Be \"kind\"\n";
    session.messages.push_back({"user", "żółw 漢 \x01"});
    session.messages.push_back({"assistant", ""});
    session.settings.sampling.temperature = 0.1;
    session.settings.sampling.seed = 18446744073709551615ULL;
    session.settings.ignore_end = true;
    session.settings.text = {.max_tokens = 12, .stops = {"a", "\n\n"}};
    const ChatSession back = parse_chat_session(to_json_text(session), "F", {});
    EXPECT_EQ(to_json_text(back), to_json_text(session));
    EXPECT_EQ(back.messages, session.messages);
    EXPECT_EQ(back.settings.sampling.seed, session.settings.sampling.seed);
    EXPECT_EQ(back.settings.sampling.temperature, 0.1);
    EXPECT_TRUE(back.settings.ignore_end);
    EXPECT_THAT(back.settings.text.stops, ElementsAre("a", "\n\n"));
    EXPECT_FALSE(back.settings.think);
    EXPECT_TRUE(ends_unanswered(back));
    session.messages.back().thought = "So \n";
    session.settings.think = false;
    const ChatSession thinking = parse_chat_session(to_json_text(session), "F", {});
    EXPECT_EQ(thinking.messages, session.messages);
    EXPECT_EQ(thinking.settings.think, false);
    EXPECT_FALSE(ends_unanswered(thinking));
    const TemporaryFolder folder;
    ChatFile(folder.path() / "s.json").save(session);
    EXPECT_EQ(to_json_text(load_chat_session(folder.path() / "s.json", {})), to_json_text(session));
}

TEST(ChatSession, IsForItsOwnerAloneAndKeepsAModeThatWasGiven) {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder.path() / "s.json";
    ChatFile(path).save({});
    const auto own = std::filesystem::perms::owner_read | std::filesystem::perms::owner_write;
    EXPECT_EQ(std::filesystem::status(path).permissions(), own);
    for (const auto mode : {own, own | std::filesystem::perms::group_read, own | std::filesystem::perms::others_read}) {
        std::filesystem::permissions(path, mode);
        ChatFile(path).save({});
        EXPECT_EQ(std::filesystem::status(path).permissions(), mode);
    }
}

TEST(ChatSession, IsAFileOfSomeSize) {
    const TemporaryFolder folder;
    const auto error = [](const std::filesystem::path& path) {
        return error_of<RequestError>([&] { static_cast<void>(load_chat_session(path, {})); });
    };
    EXPECT_THAT(error(folder.path()), HasSubstr("this is a folder"));
    EXPECT_THAT(error("/dev/zero"), HasSubstr("this is a device"));
    const std::filesystem::path large = folder.write("large.json", "");
    std::filesystem::resize_file(large, (std::uintmax_t{256} << 20U) + 1);
    EXPECT_THAT(error(large), HasSubstr("more than 256 MiB"));
}

TEST(ChatSession, RefusesWhatItHasNotSaved) {
    const std::string head = R"({"format":"slipstream chat","version":1,"model":"m",)";
    const auto error = [](const std::string& text) {
        return error_of<FormatError>([&] { static_cast<void>(parse_chat_session(text, "F.json", {})); });
    };
    for (const std::string& text :
         {std::string("{"), std::string("[]"), std::string("{}"), std::string(R"({"format":"slipstream chat"})"),
          std::string(R"({"format":"slipstream chat","version":2,"model":"m","messages":[]})"),
          head + R"("messages":3})", head + R"("messages":[{"role":"user","content":"x"}]})",
          head + R"("messages":[{"role":"assistant","content":"x"},{"role":"user","content":"x"}]})",
          head + R"("messages":[{"role":"user","content":3},{"role":"assistant","content":"x"}]})",
          head + R"("messages":[],"settings":{"temperature":-1}})", head + R"("messages":[],"settings":{"seed":"1"}})",
          head + R"("messages":[],"settings":{"nonsense":1}})", head + R"("messages":[],"settings":{"stop":["" ]}})",
          head + R"("messages":[],"settings":{"think":1}})",
          head + R"("messages":[{"role":"user","content":"x"},{"role":"assistant","content":"x","thought":1}]})",
          head + R"("messages":[],"system":4})"})
        EXPECT_THAT(error(text), HasSubstr("F.json")) << text;
    // What is not said is as it was.
    ChatSettings defaults;
    defaults.sampling.top_k = 7;
    EXPECT_EQ(parse_chat_session(head + R"("messages":[]})", "F", defaults).settings.sampling.top_k, 7);
}

class Lines final : public ChatInput {
public:
    explicit Lines(std::deque<std::string> lines) : lines_(std::move(lines)) {}
    ChatLine next_line(std::string_view) override {
        if (lines_.empty()) return {};
        ChatLine line{InputKind::Text, lines_.front()};
        lines_.pop_front();
        return line;
    }

private:
    std::deque<std::string> lines_;
};

TEST(ChatInput, JoinsLinesBetweenQuotes) {
    Lines lines(
        {"one", "\"\"\"two", "", "  three\"\"\"", "\"\"\"", "", "four", "\"\"\"", "\"\"\"five\"\"\"", "\"\"\"\"\"\""});
    for (const char* expected : {"one", "two\n\n  three", "\nfour", "five", ""}) {
        const ChatLine line = next_message(lines, 100);
        EXPECT_EQ(line.kind, InputKind::Text);
        EXPECT_EQ(line.text, expected);
    }
    EXPECT_EQ(next_message(lines, 100).kind, InputKind::End);
    Lines open({"\"\"\"a", "b"});
    EXPECT_THAT(error_of<RequestError>([&] { static_cast<void>(next_message(open, 100)); }), HasSubstr("has no end"));
    Lines endless({"\"\"\"a", "b", "c"});
    EXPECT_THAT(error_of<RequestError>([&] { static_cast<void>(next_message(endless, 3)); }),
                HasSubstr("more than 3 bytes"));
}

TEST(LineHistory, KeepsLinesBetweenRuns) {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder.path() / "slipstream" / "history";
    LineHistory first(path);
    for (const char* line : {"a", "a", "", "b\\n\n\\"}) EXPECT_TRUE(first.add(line));
    EXPECT_THAT(LineHistory(path).lines(), ElementsAre("a", "b\\n\n\\"));
    EXPECT_EQ(std::filesystem::status(path).permissions() & std::filesystem::perms::all,
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    EXPECT_EQ(std::filesystem::status(path.parent_path()).permissions() & std::filesystem::perms::all,
              std::filesystem::perms::owner_all);
    for (std::size_t i = 0; i < LineHistory::kMostLines + 10; ++i) EXPECT_TRUE(first.add(std::to_string(i)));
    const LineHistory second(path);
    EXPECT_EQ(second.lines().size(), LineHistory::kMostLines);
    EXPECT_EQ(second.lines().back(), std::to_string(LineHistory::kMostLines + 9));
    EXPECT_EQ(LineHistory(path).lines().size(), LineHistory::kMostLines / 2);  // the file was cut
    EXPECT_TRUE(LineHistory({}).add("nowhere"));
    EXPECT_FALSE(LineHistory(folder.write("file", "") / "below").add("x"));
}

TEST(LineHistory, LiesInTheStateFolder) {
    const auto environment = [](const std::string& name) -> std::optional<std::string> {
        return name == "HOME" ? std::optional<std::string>("/nowhere") : std::nullopt;
    };
    EXPECT_EQ(history_path(environment), "/nowhere/.local/state/slipstream/chat_history");
    EXPECT_EQ(history_path([](const std::string& name) { return std::optional<std::string>("/" + name); }),
              "/XDG_STATE_HOME/slipstream/chat_history");
    EXPECT_EQ(history_path([](const std::string&) { return std::nullopt; }), "");
}

}  // namespace
}  // namespace slipstream::tools
