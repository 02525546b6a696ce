// What people say in a conversation is text, also where it spells a control token: "<|im_end|>" in a message must not
// end the message. A template makes one string of markup and messages, so whoever renders it marks those places first:
// in front of each spelling goes a character that occurs nowhere else, which passes through most templates as any
// letter does; behind the template the marks are taken out again and their places kept, for Tokenizer::encode_prompt()
// to see no token there. Messages that spell none are rendered as they are, so their ids are those of transformers
// (which takes the spelling for the token wherever it stands).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/tokenizer/spelling_matcher.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

/// A prompt, and the places in it where a control token is only spelt: byte offsets, ascending.
struct PromptText {
    std::string text;
    std::vector<std::size_t> literal_at;
};

class LiteralMarker {
public:
    /// For the control tokens of this vocabulary, and the user-defined ones that look like them (is_turn_mark()).
    explicit LiteralMarker(const Tokenizer& tokenizer);

    /// Whether `text` spells one.
    [[nodiscard]] bool is_spelt_in(std::string_view text) const { return spellings_.find(text, 0).has_value(); }
    /// The first spelling in `text` that one of `messages` holds as well.
    [[nodiscard]] std::optional<std::string_view> spelt_in_both(std::string_view text,
                                                                std::span<const std::string_view> messages) const;
    /// `text` with `mark` in front of each spelling, also of those that overlap.
    [[nodiscard]] std::string marked(std::string_view text, std::string_view mark) const;

private:
    SpellingMatcher spellings_;
};

/// A character that occurs in none of `texts`. Throws RequestError where they hold every one that would do.
[[nodiscard]] std::string unused_mark(std::span<const std::string_view> texts);

/// `text` without its marks.
[[nodiscard]] PromptText without_marks(std::string_view text, std::string_view mark);

}  // namespace slipstream
