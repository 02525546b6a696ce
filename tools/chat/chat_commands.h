// The commands of a chat: lines that begin with a slash.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace slipstream::tools {

enum class ChatCommand : std::uint8_t { Help, Stats, Context, Save, Load, Undo, Regen, Set, System, Read, Clear, Exit };

struct ChatCommandLine {
    ChatCommand command;
    std::string argument;  // what follows the name, without spaces at its ends
};

/// Nothing where `line` is no command: it does not begin with a slash, begins with two of them, or has several lines.
/// Throws UsageError for an unknown command, with the closest one.
[[nodiscard]] std::optional<ChatCommandLine> parse_chat_command(std::string_view line);

/// The message that a line stands for: "//text" is "/text".
[[nodiscard]] std::string_view message_of_line(std::string_view line);

/// All commands, a line each.
[[nodiscard]] std::string chat_help();

}  // namespace slipstream::tools
