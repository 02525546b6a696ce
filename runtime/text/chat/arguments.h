// Python's rules for handing arguments to the parameters of a built-in function, and their types.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/text/chat/objects.h"
#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

/// A value for each of `names`, missing where none was given; the first `n_required` must be. A name that is empty
/// takes positional arguments only. Throws TemplateError with `function` in it.
[[nodiscard]] std::vector<Value> bind(std::string_view function, const Arguments& arguments,
                                      std::initializer_list<std::string_view> names, std::size_t n_required);

/// The value as a parameter of that type; `what` names it in the TemplateError that anything else gets.
[[nodiscard]] std::string_view text_of(const Value& value, std::string_view what);
[[nodiscard]] std::int64_t int_of(const Value& value, std::string_view what);
/// The same, with a default for what is missing.
[[nodiscard]] std::int64_t int_or(const Value& value, std::int64_t otherwise, std::string_view what);
/// Of parameters where Python takes ints and bools alone.
[[nodiscard]] bool flag_or(const Value& value, bool otherwise, std::string_view what);
/// Of parameters that any value may be.
[[nodiscard]] bool truth_or(const Value& value, bool otherwise);
[[nodiscard]] inline bool is_given(const Value& value) {
    return !value.is_missing();
}
[[nodiscard]] inline bool is_given_and_some(const Value& value) {
    return !value.is_missing() && !value.is_none();
}

}  // namespace slipstream::jinja
