// obj.name, obj[key] and obj[start:stop:step], by the rules of Jinja's immutable sandbox: a dot asks for the attribute
// first and the element second, brackets the other way round; what is not there is undefined, and what would change a
// value is undefined as well, with that as its reason.
#pragma once

#include <string_view>

#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

class Runtime;

/// Throws TemplateError for the attribute of an undefined value.
[[nodiscard]] Value get_attribute(Runtime& runtime, const Value& object, std::string_view name);
/// Without a look at its elements.
[[nodiscard]] Value get_attribute_only(Runtime& runtime, const Value& object, std::string_view name);
/// obj[key]; throws TemplateError for the element of an undefined value.
[[nodiscard]] Value get_item(Runtime& runtime, const Value& object, const Value& key);
/// The bounds are ints or none. Throws TemplateError for what has no slices.
[[nodiscard]] Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                              const Value& step);

}  // namespace slipstream::jinja
