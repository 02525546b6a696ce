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

// Numbers: ints of 64 bits (a result that does not fit is an error, never a wrong number), floats, and bools, which
// count as ints.

/// Compares two numbers exactly, also an int with a float. Returns unordered if one of them is NaN.
[[nodiscard]] std::partial_ordering compare_numbers(const Value& a, const Value& b);

/// Returns `number` as an integer, or nullopt if it is not whole or does not fit 64 bits.
[[nodiscard]] std::optional<std::int64_t> exact_integer(double number);

enum class Arithmetic : std::uint8_t { Add, Subtract, Multiply, Divide, FloorDivide, Modulo };

/// Returns `a` operation `b`. Both must be numbers (ints, floats, bools). Throws TemplateError if Python would raise
/// (division by zero) or an int does not fit 64 bits.
[[nodiscard]] Value calculate(Arithmetic operation, const Value& a, const Value& b);

/// Return int(text) and float(text) as Python computes them: white space around the number and a sign are allowed.
/// Return nullopt if Python would raise ValueError. Throws TemplateError if an int does not fit 64 bits.
[[nodiscard]] std::optional<std::int64_t> parse_int(std::string_view text);
[[nodiscard]] std::optional<double> parse_float(std::string_view text);

/// Returns `number` as repr() writes it: the fewest digits from which the same number is read.
[[nodiscard]] std::string float_text(double number);

// Operators on values of all types. They throw TemplateError if Python would raise, and charge `runtime` for their
// steps.

[[nodiscard]] Value arithmetic(Runtime& runtime, Arithmetic operation, const Value& a, const Value& b);

enum class Comparison : std::uint8_t { Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual, In, NotIn };
[[nodiscard]] bool compare(Runtime& runtime, Comparison comparison, const Value& a, const Value& b);
[[nodiscard]] bool equal(Runtime& runtime, const Value& a, const Value& b);
[[nodiscard]] inline bool less(Runtime& runtime, const Value& a, const Value& b) {
    return compare(runtime, Comparison::Less, a, b);
}
/// Returns the position of `part` in `text` at or after byte `from`, or npos. Takes linear time for all texts.
[[nodiscard]] std::size_t find_text(std::string_view text, std::string_view part, std::size_t from = 0);

/// Returns list(value): the items of a sequence, the characters of a text, the keys of a dict; an empty list for
/// undefined. Of a generator, returns the items that are left and marks them as read. Throws TemplateError if `value`
/// is not iterable.
[[nodiscard]] std::vector<Value> to_items(Runtime& runtime, const Value& value);
/// Returns len(value), or nullopt if `value` has no length. For a text, it takes linear time.
[[nodiscard]] std::optional<std::int64_t> length_of(Runtime& runtime, const Value& value);

/// Returns getattr(object, name): a method or attribute; nullopt if Python would raise AttributeError.
[[nodiscard]] std::optional<Value> own_attribute(Runtime& runtime, const Value& object, std::string_view name);
/// Returns object.name: the method or attribute if there is one (getattr()), else the element of a dict, else
/// undefined. Throws TemplateError if `object` is undefined.
[[nodiscard]] Value get_attribute(Runtime& runtime, const Value& object, const Value& name);
/// Returns object[key]: the element if there is one, else the method or attribute (getattr()), else undefined. Throws
/// TemplateError if `object` is undefined.
[[nodiscard]] Value get_item(Runtime& runtime, const Value& object, const Value& key);
/// Returns whether Python can slice values of these types, object[start:stop:step]; where not, Python raises TypeError
/// or LookupError. Never throws; a step of 0 is not checked (get_slice() throws). `object` must not be undefined.
[[nodiscard]] bool can_slice(const Value& object, const Value& start, const Value& stop, const Value& step);
/// Returns object[start:stop:step]. A bound that the template left out must be none.
[[nodiscard]] Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                              const Value& step);

/// Sorts stably by merging. It stays within the array even if `before` is not an order: NaN compares with nothing, and
/// the library's sort functions may run out of bounds then. `before`(a, b) may throw; then the order of the items is
/// unspecified, and no item is duplicated or lost.
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
                // Equal items keep their order: the right item goes first only if it must be before the left one.
                const bool take_right = right < end && (left == middle || before(items[right], items[left]));
                other[to] = items[take_right ? right++ : left++];
            }
        }
        items.swap(other);
    }
}

}  // namespace slipstream::jinja
