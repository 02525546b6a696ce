// The commands of a chat: input lines that begin with a slash.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace slipstream::tools {

enum class ChatCommand : std::uint8_t { Help, Stats, Context, Save, Load, Undo, Regen, Set, System, Read, Clear, Exit };

struct ChatCommandLine {
    ChatCommand command;
    std::string argument;  // the text after the name, without leading and trailing spaces
};

/// Parses a line of input. Returns nullopt if `line` is a message: it does not begin with a slash, begins with two, or
/// contains a newline. Throws UsageError for an unknown command; the error names the closest known one.
[[nodiscard]] std::optional<ChatCommandLine> parse_chat_command(std::string_view line);

/// Returns the message in a line that is no command: `line` itself, or "/text" for the line "//text", which lets a
/// message begin with a slash. A view into `line`.
[[nodiscard]] std::string_view message_of_line(std::string_view line);

/// Returns the text of /help: all commands, one per line.
[[nodiscard]] std::string chat_help();

}  // namespace slipstream::tools
