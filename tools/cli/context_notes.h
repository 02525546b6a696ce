// What is said about the context before it is full: at the start, where what was asked for does not fit, and once more
// when little room is left.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace slipstream::tools {

/// A note where prompt and `max_tokens` (-1: no limit) do not fit together: how many tokens do, and which --ctx would
/// hold all.
[[nodiscard]] std::optional<std::string> overflow_note(std::int64_t prompt_tokens, std::int64_t max_tokens,
                                                       std::int64_t context_tokens);

/// Speaks up once, when a twentieth of the context is left and the text will not end before it.
class ContextWatch {
public:
    ContextWatch(std::int64_t prompt_tokens, std::int64_t max_tokens, std::int64_t context_tokens);
    /// `n_generated` tokens are there.
    [[nodiscard]] std::optional<std::string> at(std::int64_t n_generated);

private:
    std::int64_t prompt_tokens_;
    std::int64_t context_tokens_;
    bool armed_;
};

}  // namespace slipstream::tools
