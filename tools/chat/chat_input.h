// Reads the messages of a chat: line by line, from a pipe (PipedInput) or a terminal (LineEditor). Three quotes begin
// and end a message of several lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace slipstream::tools {

enum class InputKind : std::uint8_t {
    Text,
    End,          // end of input
    Interrupted,  // a signal arrived while the call waited for a line
};

struct ChatLine {
    InputKind kind = InputKind::End;
    std::string text;  // the input without the newline at its end; a paste may contain newlines
};

class ChatInput {
public:
    virtual ~ChatInput() = default;
    /// Waits for a line. A terminal shows `prompt`. Throws IoError.
    [[nodiscard]] virtual ChatLine next_line(std::string_view prompt) = 0;
};

/// Reads lines from stdin if it is not a terminal.
class PipedInput final : public ChatInput {
public:
    /// `most_bytes`: longest line. next_line() throws RequestError once more than that is read without a newline.
    explicit PipedInput(std::size_t most_bytes) : most_bytes_(most_bytes) {}
    [[nodiscard]] ChatLine next_line(std::string_view prompt) override;

private:
    std::size_t most_bytes_;
    std::string held_;  // bytes that are read and not yet returned
    bool at_end_ = false;
};

/// Reads a message: one line or, if the line begins with three quotes, all text up to the next line that ends with
/// three quotes (it may be the same line). Throws RequestError if the input ends before the closing quotes, or if the
/// message is longer than `most_bytes`.
[[nodiscard]] ChatLine next_message(ChatInput& input, std::size_t most_bytes);

}  // namespace slipstream::tools
