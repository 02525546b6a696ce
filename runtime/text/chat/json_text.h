// JSON in and out: what callers hand to a template, and the filter tojson as transformers configures it (json.dumps
// with ensure_ascii=False, and nothing escaped for HTML).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/text/chat/text_builder.h"
#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

class Runtime;

/// Reads JSON with the order of its keys kept; of a key that stands twice the last value counts, as in Python. `what`
/// names it in the TemplateError of text that is no JSON, is nested deeper than 100, or holds integers beyond 64 bits.
[[nodiscard]] Value parse_json(std::string_view text, std::string_view what);

enum class JsonCharacters : std::uint8_t { Unicode, AsciiOnly };
enum class JsonKeys : std::uint8_t { AsTheyStand, Sorted };

struct JsonStyle {
    JsonCharacters characters = JsonCharacters::Unicode;
    JsonKeys keys = JsonKeys::AsTheyStand;
    std::optional<std::string> indent;  // of one level; none: all on one line
    std::string item_separator = ", ";
    std::string key_separator = ": ";
};

/// Appends json.dumps(value); throws TemplateError for what JSON cannot say.
void write_json(Runtime& runtime, TextBuilder& out, const Value& value, const JsonStyle& style);

}  // namespace slipstream::jinja
