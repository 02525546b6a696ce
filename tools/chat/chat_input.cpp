#include "tools/chat/chat_input.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/base/amounts.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

constexpr std::string_view kPrompt = "> ";
constexpr std::string_view kPromptInside = ". ";
constexpr std::string_view kQuotes = "\"\"\"";

[[noreturn]] void refuse_length(std::size_t most_bytes) {
    throw RequestError(
        fmt::format("stdin: a message of more than {}, which no context of this model holds", size_text(most_bytes)));
}

}  // namespace

ChatLine PipedInput::next_line(std::string_view /*prompt*/) {
    std::size_t looked_at = 0;
    for (;;) {
        const std::size_t end = held_.find('\n', looked_at);
        if (end != std::string::npos || (at_end_ && !held_.empty())) {
            ChatLine line{InputKind::Text, held_.substr(0, end)};
            held_.erase(0, end == std::string::npos ? end : end + 1);
            if (line.text.ends_with('\r')) line.text.pop_back();
            return line;
        }
        if (at_end_) return {InputKind::End, {}};
        if (held_.size() > most_bytes_) refuse_length(most_bytes_);
        looked_at = held_.size();
        std::array<char, 16384> piece;
        const ssize_t n = read_some(STDIN_FILENO, piece.data(), piece.size());
        if (signal_exit_code() != 0) return {InputKind::Interrupted, {}};
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) throw IoError(fmt::format("stdin: {}", std::strerror(errno)));
        if (n == 0) at_end_ = true;
        held_.append(piece.data(), n);
    }
}

ChatLine next_message(ChatInput& input, std::size_t most_bytes) {
    ChatLine line = input.next_line(kPrompt);
    if (line.kind != InputKind::Text || !line.text.starts_with(kQuotes)) return line;
    std::string text = line.text.substr(kQuotes.size());
    while (!text.ends_with(kQuotes)) {
        line = input.next_line(kPromptInside);
        if (line.kind == InputKind::Interrupted) return line;
        if (line.kind == InputKind::End)
            throw RequestError("a message begun by \"\"\" has no end; close it by \"\"\" at the end of a line");
        text += "\n" + line.text;
        if (text.size() > most_bytes) refuse_length(most_bytes);
    }
    text.resize(text.size() - kQuotes.size());
    // If the quotes have a line of their own, the newline next to them is not part of the message.
    if (text.ends_with('\n')) text.pop_back();
    if (text.starts_with('\n')) text.erase(0, 1);
    return {InputKind::Text, std::move(text)};
}

}  // namespace slipstream::tools
