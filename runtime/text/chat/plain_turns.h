// The prompt of a conversation with a model that has no chat template: a plain text in which user and model take turns
// by paragraphs. The model continues after the user's line and ends its turn with the paragraph.
#pragma once

#include <string_view>

#include "runtime/text/marked_text.h"

namespace slipstream {

/// The empty line between turns of a prompt without a template: it ends a turn of the model, and precedes a turn of the
/// user.
inline constexpr std::string_view kParagraph = "\n\n";

/// Appends `text` to `prompt` and marks it as said (from a message), so that no control token is made of it.
inline void say(MarkedText& prompt, std::string_view text) {
    append_span(prompt.said, {prompt.bytes.size(), prompt.bytes.size() + text.size()});
    prompt.bytes += text;
}

/// Appends a turn to `prompt`. `role` is "system", "user" or "assistant".
inline void append_turn(MarkedText& prompt, std::string_view role, std::string_view text) {
    if (role == "user" && !prompt.bytes.empty()) prompt.bytes += kParagraph;
    say(prompt, text);
}

}  // namespace slipstream
