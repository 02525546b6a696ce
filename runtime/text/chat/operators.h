// Python's operators: arithmetic, comparison, containment, iteration, elements and slices.
#pragma once

#include <algorithm>
#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/chat/runtime.h"

namespace slipstream::jinja {

// Numbers: ints of 64 bits (what does not fit is an error, never a wrong number), floats, bools as ints.

/// Exact, also between ints and floats; unordered where a NaN is in it.
[[nodiscard]] std::partial_ordering compare_numbers(const Value& a, const Value& b);

/// The integer that `number` is, if it is one of 64 bits.
[[nodiscard]] std::optional<std::int64_t> exact_integer(double number);

enum class Arithmetic : std::uint8_t { Add, Subtract, Multiply, Divide, FloorDivide, Modulo };

/// `a` op `b` for numbers (ints, floats, bools); throws TemplateError as Python raises (division by zero), and where an
/// int leaves 64 bits.
[[nodiscard]] Value calculate(Arithmetic operation, const Value& a, const Value& b);

/// int(text) and float(text): white space around it, a sign. Nothing where Python raises ValueError; throws
/// TemplateError where an int leaves 64 bits.
[[nodiscard]] std::optional<std::int64_t> parse_int(std::string_view text);
[[nodiscard]] std::optional<double> parse_float(std::string_view text);

/// As repr() spells it: the shortest digits that give the number again.
[[nodiscard]] std::string float_text(double number);

// All values.

[[nodiscard]] Value arithmetic(Runtime& runtime, Arithmetic operation, const Value& a, const Value& b);

enum class Comparison : std::uint8_t { Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual, In, NotIn };
[[nodiscard]] bool compare(Runtime& runtime, Comparison comparison, const Value& a, const Value& b);
[[nodiscard]] bool equal(Runtime& runtime, const Value& a, const Value& b);
[[nodiscard]] inline bool less(Runtime& runtime, const Value& a, const Value& b) {
    return compare(runtime, Comparison::Less, a, b);
}
/// Where `part` stands in `text` at or behind `from`, or npos; linear whatever the texts.
[[nodiscard]] std::size_t find_text(std::string_view text, std::string_view part, std::size_t from = 0);

/// list(value) of what has items: sequences, the characters of a text, the keys of a dict, nothing of undefined.
/// What is left of a generator is read. Throws TemplateError for what cannot be iterated over.
[[nodiscard]] std::vector<Value> to_items(Runtime& runtime, const Value& value);
/// len(value), or nothing. Of a text this walks over it.
[[nodiscard]] std::optional<std::int64_t> length_of(Runtime& runtime, const Value& value);

/// object.name: what getattr() gives (a method, an attribute), else the element; undefined where there is neither.
[[nodiscard]] Value get_attribute(Runtime& runtime, const Value& object, const Value& name);
/// object[key]: the element, else what getattr() gives.
[[nodiscard]] Value get_item(Runtime& runtime, const Value& object, const Value& key);
/// Whether Python slices such an object by such bounds; else it raises TypeError or LookupError.
[[nodiscard]] bool can_slice(const Value& object, const Value& start, const Value& stop, const Value& step);
/// object[start:stop:step], none for what is left out.
[[nodiscard]] Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                              const Value& step);

/// A stable merge sort that stays within its array whatever the comparison answers: NaN compares with nothing, and the
/// standard library's sorts may run out of bounds on such an order.
/// `before(a, b)` may throw; the items are then in some order, none twice or lost.
template <typename T, typename Before>
void merge_sort(std::vector<T>& items, Before before) {
    std::vector<T> other(items.size());
    for (std::size_t width = 1; width < items.size(); width *= 2) {
        for (std::size_t begin = 0; begin < items.size(); begin += 2 * width) {
            const std::size_t middle = std::min(begin + width, items.size());
            const std::size_t end = std::min(begin + 2 * width, items.size());
            std::size_t left = begin;
            std::size_t right = middle;
            for (std::size_t to = begin; to < end; ++to) {
                // Equal items keep their order: the right one goes first only where it is really before the left.
                const bool take_right = right < end && (left == middle || before(items[right], items[left]));
                other[to] = items[take_right ? right++ : left++];
            }
        }
        items.swap(other);
    }
}

}  // namespace slipstream::jinja
