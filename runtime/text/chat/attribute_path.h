// The `attribute` argument of filters: "name", "a.b.0" (a number is an index), a number, or none for the value itself.
#pragma once

#include <vector>

#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

class Runtime;

class AttributePath {
public:
    /// Throws TemplateError for what names no attribute.
    explicit AttributePath(const Value& attribute);

    /// What the path leads to; on the way `otherwise` stands for what is undefined, unless it is missing.
    [[nodiscard]] Value of(Runtime& runtime, Value item, const Value& otherwise = Value()) const;

private:
    std::vector<Value> parts_;
};

/// Several paths, "a.b,c", for sorting.
[[nodiscard]] std::vector<AttributePath> attribute_paths(const Value& attributes);

enum class LetterCase : std::uint8_t { Kept, Ignored };

/// A text in lower case where its case does not matter.
[[nodiscard]] Value comparable(Runtime& runtime, const Value& value, LetterCase letter_case);

}  // namespace slipstream::jinja
