// What filters and methods of texts have in common. `self` is a text.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/chat/builtin.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

/// The first argument, if there is one, holds the characters to take off.
[[nodiscard]] Value strip_text(Runtime& runtime, const Value& self, Ends ends, const Given& given);
[[nodiscard]] Value map_text(Runtime& runtime, const Value& self, LetterCase to);
[[nodiscard]] Value capitalize_text(Runtime& runtime, const Value& self);
/// Of the first `count` places, or of all where it is negative.
[[nodiscard]] Value replace_text(Runtime& runtime, const Value& self, const Text& from, const Text& to,
                                 std::int64_t count);
/// "{}", "{0}" and "{name}"; specs, conversions and attributes inside the braces are not served.
[[nodiscard]] Value format_text(Runtime& runtime, const Value& self, const Given& given);

struct Line {
    TextSpan text;
    std::size_t end;  // behind the line break
};
/// Cut where str.splitlines() cuts.
[[nodiscard]] std::vector<Line> lines_of(Runtime& runtime, std::string_view text);

}  // namespace slipstream::jinja
