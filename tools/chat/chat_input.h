// Where the messages of a chat come from: a line at a time, from a pipe or from a person, joined where three quotes say
// that a message has several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace slipstream::tools {

enum class InputKind : std::uint8_t {
    Text,
    End,          // nothing more comes
    Interrupted,  // a signal came while it was waited for
};

struct ChatLine {
    InputKind kind = InputKind::End;
    std::string text;  // without the newline at its end; a paste may have several lines
};

class ChatInput {
public:
    virtual ~ChatInput() = default;
    /// `prompt` is shown where somebody sees it. Throws IoError.
    [[nodiscard]] virtual ChatLine next_line(std::string_view prompt) = 0;
};

/// Lines of stdin.
class PipedInput final : public ChatInput {
public:
    /// A line holds at most `most_bytes`; next_line() throws RequestError of a longer one before it has read it all.
    explicit PipedInput(std::size_t most_bytes) : most_bytes_(most_bytes) {}
    [[nodiscard]] ChatLine next_line(std::string_view prompt) override;

private:
    std::size_t most_bytes_;
    std::string held_;  // read already
    bool at_end_ = false;
};

/// A whole message: a line, or what stands between three quotes at the beginning of one and at the end of one (the same
/// or a later one). Throws RequestError where the input ends before those, or the message has more than `most_bytes`.
[[nodiscard]] ChatLine next_message(ChatInput& input, std::size_t most_bytes);

}  // namespace slipstream::tools
