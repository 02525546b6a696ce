#include "tools/chat/chat_commands.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "runtime/text/printable.h"
#include "tools/base/closest_name.h"
#include "tools/base/usage_error.h"

namespace slipstream::tools {

namespace {

struct Named {
    std::string_view name;
    ChatCommand command;
    std::string_view usage;  // empty: this name is an alias of the previous entry
    std::string_view help;
};

constexpr std::array kCommands{
    Named{"help", ChatCommand::Help, "/help", "this list"},
    Named{"stats", ChatCommand::Stats, "/stats", "figures of the whole chat"},
    Named{"context", ChatCommand::Context, "/context", "how much of the context is used"},
    Named{"save", ChatCommand::Save, "/save [F]", "write the chat to a file (JSON)"},
    Named{"load", ChatCommand::Load, "/load F", "go on with a chat from a file"},
    Named{"undo", ChatCommand::Undo, "/undo", "take back the last message and its answer"},
    Named{"regen", ChatCommand::Regen, "/regen",
          "another answer to the last message, with the next seed; the first one if there is none"},
    Named{"set", ChatCommand::Set, "/set [NAME VALUE]",
          "show the settings, or change one (/set temperature 0.5, /set think off)"},
    Named{"system", ChatCommand::System, "/system [TEXT]", "show the system message, or change it ('none': none)"},
    Named{"read", ChatCommand::Read, "/read FILE", "send the text of a file"},
    Named{"clear", ChatCommand::Clear, "/clear", "forget all messages"},
    Named{"exit", ChatCommand::Exit, "/exit, /quit, /bye", "leave (so does Ctrl-D)"},
    Named{"quit", ChatCommand::Exit, "", ""},
    Named{"bye", ChatCommand::Exit, "", ""},
};

constexpr std::string_view kSpaces = " \t\r";

std::string_view trimmed(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(kSpaces);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

}  // namespace

std::optional<ChatCommandLine> parse_chat_command(std::string_view line) {
    if (!line.starts_with("/") || line.starts_with("//") || line.find('\n') != std::string_view::npos)
        return std::nullopt;
    const std::size_t end = std::min(line.find_first_of(kSpaces), line.size());
    const std::string_view name = line.substr(1, end - 1);
    const auto found = std::ranges::find(kCommands, name, &Named::name);
    if (found != kCommands.end()) return ChatCommandLine{found->command, std::string(trimmed(line.substr(end)))};
    std::array<std::string_view, kCommands.size()> names;
    std::ranges::transform(kCommands, names.begin(), &Named::name);
    const std::string_view meant = closest_name(name, names);
    throw UsageError(
        fmt::format("unknown command /{}; {}, a message that begins with a slash needs two", printable(name),
                    meant.empty() ? "/help lists them" : fmt::format("did you mean /{}? /help lists all", meant)));
}

std::string_view message_of_line(std::string_view line) {
    return line.starts_with("//") && line.find('\n') == std::string_view::npos ? line.substr(1) : line;
}

std::string chat_help() {
    std::string text;
    for (const Named& command : kCommands)
        if (!command.usage.empty()) text += fmt::format("  {:<20}{}\n", command.usage, command.help);
    text +=
        "  \"\"\"                 begins and ends a message of several lines\n"
        "  Ctrl-C              stops an answer and keeps it; twice in a row leaves\n";
    return text;
}

}  // namespace slipstream::tools
