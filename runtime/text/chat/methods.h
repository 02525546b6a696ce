// The methods of Python's built-in types that templates call, bound to their value. Nothing where Python's type has no
// such attribute; a method that Python has and this does not serve is there, and says so when it is called.
#pragma once

#include <optional>
#include <string_view>

#include "runtime/text/chat/objects.h"
#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

class Runtime;

[[nodiscard]] std::optional<Value> text_method(Runtime& runtime, const Value& text, std::string_view name);
[[nodiscard]] std::optional<Value> dict_method(Runtime& runtime, const Value& dict, std::string_view name);
[[nodiscard]] std::optional<Value> sequence_attribute(Runtime& runtime, const Value& sequence, std::string_view name);
[[nodiscard]] std::optional<Value> number_attribute(Runtime& runtime, const Value& number, std::string_view name);

/// A row of a table of methods; the tables are sorted by name.
struct Method {
    std::string_view name;
    Function::Body body;  // null: Python has it, this does not
};

/// Methods of str that take text apart or look into it; text_method() asks here as well.
[[nodiscard]] const Method* text_search_method(std::string_view name);

/// Pieces that filters share with methods: str.replace (at most `count` times; -1 for all) and str.split by white
/// space.
[[nodiscard]] Value replace_text(Runtime& runtime, const Value& text, std::string_view old, const Value& replacement,
                                 std::int64_t count);

}  // namespace slipstream::jinja
