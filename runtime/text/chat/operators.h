// Python's operators: arithmetic, comparison, containment, iteration, elements and slices.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "runtime/text/chat/numbers.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

[[nodiscard]] Value arithmetic(Runtime& runtime, Arithmetic operation, const Value& a, const Value& b);
/// -a and +a.
[[nodiscard]] Value unary_minus(const Value& a);
[[nodiscard]] Value unary_plus(const Value& a);

enum class Comparison : std::uint8_t { Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual, In, NotIn };
[[nodiscard]] bool compare(Runtime& runtime, Comparison comparison, const Value& a, const Value& b);
[[nodiscard]] bool equal(Runtime& runtime, const Value& a, const Value& b);
[[nodiscard]] bool less(Runtime& runtime, const Value& a, const Value& b);
/// `item` in `container`.
[[nodiscard]] bool contains(Runtime& runtime, const Value& container, const Value& item);
/// Where `part` stands in `text` at or behind `from`, or npos; linear whatever the texts.
[[nodiscard]] std::size_t find_text(std::string_view text, std::string_view part, std::size_t from = 0);

/// iter(value) for what has items: sequences, the characters of a text, the keys of a dict, nothing of undefined.
class Iterator {
public:
    /// Throws TemplateError for what cannot be iterated over.
    explicit Iterator(Value container);
    /// The next item, or false at the end.
    [[nodiscard]] bool next(Runtime& runtime, Value& item);

private:
    Value container_;
    std::size_t at_ = 0;  // the next item, or byte of a text
};
[[nodiscard]] bool is_iterable(const Value& value);
/// list(value).
[[nodiscard]] std::vector<Value> to_items(Runtime& runtime, const Value& value);
/// len(value), or nothing.
[[nodiscard]] std::optional<std::int64_t> length_of(const Value& value);

/// object.name: what getattr() gives (a method, an attribute), else the element; undefined where there is neither.
[[nodiscard]] Value get_attribute(Runtime& runtime, const Value& object, const Value& name);
/// object[key]: the element, else what getattr() gives.
[[nodiscard]] Value get_item(Runtime& runtime, const Value& object, const Value& key);
/// object[start:stop:step], none for what is left out.
[[nodiscard]] Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                              const Value& step);

}  // namespace slipstream::jinja
