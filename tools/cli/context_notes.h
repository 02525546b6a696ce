// Notes about the length of the context: one at the start if prompt and --max-tokens do not fit, one more when the
// context is nearly full.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace slipstream::tools {

/// Returns a note if `prompt_tokens` and `max_tokens` together are more than the context: how many tokens fit, and,
/// unless max_tokens is above 2^40, which --ctx would hold all. Returns nothing if they fit, or if max_tokens is
/// negative (no limit).
[[nodiscard]] std::optional<std::string> overflow_note(std::int64_t prompt_tokens, std::int64_t max_tokens,
                                                       std::int64_t context_tokens);

/// Warns once, when at most a twentieth of the context is left, unless --max-tokens ends the text within the context.
class ContextWatch {
public:
    ContextWatch(std::int64_t prompt_tokens, std::int64_t max_tokens, std::int64_t context_tokens);
    /// Call after each pass with the number of generated tokens. Returns the note when it is due, else nothing.
    [[nodiscard]] std::optional<std::string> at(std::int64_t n_generated);

private:
    std::int64_t prompt_tokens_;
    std::int64_t context_tokens_;
    bool armed_;
};

}  // namespace slipstream::tools
