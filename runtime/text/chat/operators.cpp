#include "runtime/text/chat/operators.h"

#include <string.h>

#include <algorithm>
#include <array>
#include <span>

#include "runtime/text/chat/builtin.h"
#include "runtime/text/chat/spelling.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

constexpr std::array<std::string_view, 6> kArithmeticSigns = {"+", "-", "*", "/", "//", "%"};
constexpr std::array<std::string_view, 6> kComparisonSigns = {"==", "!=", "<", "<=", ">", ">="};

void append_escaped(TextBuilder& out, const MarkedText& text) {
    for (std::size_t i = 0; i < text.bytes.size(); ++i) {
        const char c = text.bytes[i];
        const std::string_view escape = c == '&'    ? "&amp;"
                                        : c == '<'  ? "&lt;"
                                        : c == '>'  ? "&gt;"
                                        : c == '"'  ? "&#34;"
                                        : c == '\'' ? "&#39;"
                                                    : "";
        if (escape.empty())
            out.append(text, {i, i + 1});
        else
            out.append(escape, text.origin_at(i));
    }
}

Value add_texts(Runtime& runtime, const Text& a, const Text& b) {
    TextBuilder out = runtime.builder();
    const bool is_safe = a.is_safe || b.is_safe;
    for (const Text* text : {&a, &b})
        if (is_safe && !text->is_safe) {
            runtime.spend_chars(2 * text->bytes().size());
            append_escaped(out, text->marked);
        } else {
            out.append(text->marked);
        }
    return runtime.text(Text{out.take(), is_safe});
}

// Returns the items of `a`, `count` times, followed by those of `b`.
Value joined(Runtime& runtime, const Value& a, std::size_t count, const std::vector<Value>& b) {
    std::size_t total = 0;
    if (__builtin_mul_overflow(count, a.items().size(), &total)) total = SIZE_MAX / 2;
    runtime.check_items(total + b.size());
    std::vector<Value> items;
    items.reserve(total + b.size());
    while (items.size() < total) items.insert(items.end(), a.items().begin(), a.items().end());
    items.insert(items.end(), b.begin(), b.end());
    return runtime.sequence(a.kind(), std::move(items));
}

Value add(Runtime& runtime, const Value& a, const Value& b) {
    if (a.is_text() && b.is_text()) return add_texts(runtime, a.text(), b.text());
    if (a.is_list_or_tuple() && a.kind() == b.kind()) return joined(runtime, a, 1, b.items());
    if (a.is_text() || a.is_list_or_tuple())
        fail("can only concatenate {0} (not \"{1}\") to {0}", type_name(a), type_name(b));
    fail("unsupported operand type(s) for +: '{}' and '{}'", type_name(a), type_name(b));
}

Value repeat(Runtime& runtime, const Value& value, const Value& times) {
    if (!times.is_integral()) fail("can't multiply sequence by non-int of type '{}'", type_name(times));
    const std::int64_t count = std::max<std::int64_t>(times.integer(), 0);
    if (!value.is_text()) return joined(runtime, value, count, {});
    TextBuilder out = runtime.builder();
    out.repeat(count, value.text().marked);
    return runtime.text(out);
}

template <typename Ordering>
bool holds(Comparison comparison, Ordering order) {
    if (comparison == Comparison::Less) return order < 0;
    if (comparison == Comparison::LessOrEqual) return order <= 0;
    return comparison == Comparison::Greater ? order > 0 : order >= 0;
}

// Returns whether Python's containers treat the values as equal: if they are the same object (even one with a NaN
// inside), or equal.
bool same_or_equal(Runtime& runtime, const Value& a, const Value& b) {
    return a.is_same_cell(b) || equal(runtime, a, b);
}

// Returns whether `comparison` (an order) holds between the sequences `a` and `b`, item by item: the first difference
// decides. If one sequence is the beginning of the other, it is less.
bool compare_items(Runtime& runtime, Comparison comparison, const std::vector<Value>& a, const std::vector<Value>& b) {
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
        if (!same_or_equal(runtime, a[i], b[i])) return compare(runtime, comparison, a[i], b[i]);
    return holds(comparison, a.size() <=> b.size());
}

bool equal_dicts(Runtime& runtime, const Dict& a, const Dict& b) {
    return a.size() == b.size() && std::ranges::all_of(a.items(), [&](const Dict::Item& item) {
               const Value* other = b.find(item.first, &runtime);
               return other != nullptr && equal(runtime, item.second, *other);
           });
}

// Returns the items of a sequence. Of a generator, returns the items that were not read yet and marks them as read.
std::span<const Value> unread(const Value& value) {
    Sequence& sequence = value.sequence();
    const std::size_t first = sequence.n_read;
    if (value.is(Kind::Generator)) sequence.n_read = sequence.items.size();
    return std::span(sequence.items).subspan(first);
}

// Returns whether `item` is in `container`, as Python's `in`.
bool contains(Runtime& runtime, const Value& container, const Value& item) {
    if (container.is_text()) {
        if (!item.is_text()) fail("'in <string>' requires string as left operand, not {}", type_name(item));
        runtime.spend_bytes(container.view().size() + item.view().size());
        return find_text(container.view(), item.view()) != std::string_view::npos;
    }
    if (container.is(Kind::Dict)) return container.dict().find(item, &runtime) != nullptr;
    if (!container.is_iterable()) fail("argument of type '{}' is not iterable", type_name(container));
    if (container.is_undefined()) return false;
    return std::ranges::any_of(unread(container),
                               [&](const Value& other) { return same_or_equal(runtime, item, other); });
}

}  // namespace

Value arithmetic(Runtime& runtime, Arithmetic operation, const Value& a, const Value& b) {
    if (a.is_number() && b.is_number()) return calculate(operation, a, b);
    refuse_undefined(a);
    refuse_undefined(b);
    if (operation == Arithmetic::Add) return add(runtime, a, b);
    if (operation == Arithmetic::Multiply) {
        if (a.is_text() || a.is_list_or_tuple()) return repeat(runtime, a, b);
        if (b.is_text() || b.is_list_or_tuple()) return repeat(runtime, b, a);
    }
    if (operation == Arithmetic::Modulo && a.is_text()) fail("formatting text by % is not served in chat templates");
    fail("unsupported operand type(s) for {}: '{}' and '{}'", kArithmeticSigns[static_cast<std::size_t>(operation)],
         type_name(a), type_name(b));
}

bool equal(Runtime& runtime, const Value& a, const Value& b) {
    runtime.spend(1);
    if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
    if (a.kind() != b.kind()) return false;
    if (a.is_none() || a.is_undefined() || a.is_same_cell(b)) return true;
    if (a.is_text() || a.is(Kind::LongInt)) {
        if (a.view().size() != b.view().size()) return false;
        runtime.spend_bytes(a.view().size());
        return a.view() == b.view();
    }
    if (a.is(Kind::Dict)) return equal_dicts(runtime, a.dict(), b.dict());
    return a.is_sequence() && !a.is(Kind::Generator) &&
           std::ranges::equal(a.items(), b.items(),
                              [&](const Value& x, const Value& y) { return same_or_equal(runtime, x, y); });
}

bool compare(Runtime& runtime, Comparison comparison, const Value& a, const Value& b) {
    if (comparison == Comparison::Equal) return equal(runtime, a, b);
    if (comparison == Comparison::NotEqual) return !equal(runtime, a, b);
    if (comparison == Comparison::In) return contains(runtime, b, a);
    if (comparison == Comparison::NotIn) return !contains(runtime, b, a);
    runtime.spend(1);
    if (a.is_number() && b.is_number()) return holds(comparison, compare_numbers(a, b));
    if (a.is_text() && b.is_text()) {
        runtime.spend_bytes(std::min(a.view().size(), b.view().size()));
        return holds(comparison, a.view() <=> b.view());  // UTF-8 sorts in the order of code points
    }
    if (a.is_list_or_tuple() && a.kind() == b.kind()) return compare_items(runtime, comparison, a.items(), b.items());
    refuse_undefined(a);
    refuse_undefined(b);
    fail("'{}' not supported between instances of '{}' and '{}'",
         kComparisonSigns[static_cast<std::size_t>(comparison)], type_name(a), type_name(b));
}

std::size_t find_text(std::string_view text, std::string_view part, std::size_t from) {
    if (from > text.size()) return std::string_view::npos;
    if (part.empty()) return from;
    // memmem takes linear time (two-way); std::string_view::find takes quadratic time for texts made for it.
    const void* found = ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
    return found == nullptr ? std::string_view::npos
                            : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::vector<Value> to_items(Runtime& runtime, const Value& value) {
    if (!value.is_iterable()) fail("'{}' object is not iterable", type_name(value));
    std::vector<Value> items;
    if (value.is_sequence()) {
        const std::span<const Value> from = unread(value);
        runtime.check_items(from.size());
        items.assign(from.begin(), from.end());
    } else if (value.is(Kind::Dict)) {
        runtime.check_items(2 * value.dict().size());
        for (const auto& [key, item] : value.dict().items()) items.push_back(key);
    } else if (value.is_text()) {
        for (std::size_t at = 0; at < value.view().size();) {
            const std::size_t end = at + first_char(value.view().substr(at)).bytes.size();
            runtime.check_items(2 * items.size());
            items.push_back(runtime.part(value.text(), {std::exchange(at, end), end}));
        }
    }
    runtime.spend(std::ssize(items));
    return items;
}

std::optional<std::int64_t> length_of(Runtime& runtime, const Value& value) {
    if (value.is_text()) {
        runtime.spend_chars(value.view().size());
        return count_chars(value.view());
    }
    if (value.is(Kind::Dict)) return static_cast<std::int64_t>(value.dict().size());
    if (value.is_undefined()) return 0;
    if (!value.is_sequence() || value.is(Kind::Generator)) return std::nullopt;
    return static_cast<std::int64_t>(value.items().size());
}

namespace {

// Returns object[key], or nullopt if Python would raise TypeError or LookupError.
std::optional<Value> element(Runtime& runtime, const Value& object, const Value& key) {
    if (object.is(Kind::Dict)) {
        const Value* value = is_hashable(key) ? object.dict().find(key, &runtime) : nullptr;
        return value == nullptr ? std::nullopt : std::optional(*value);
    }
    if (!key.is_integral() || !(object.is_text() || object.is_indexable())) return std::nullopt;
    const std::int64_t length = *length_of(runtime, object);
    const std::int64_t index = key.integer() < 0 ? key.integer() + length : key.integer();
    if (index < 0 || index >= length) return std::nullopt;
    if (!object.is_text()) return object.items()[index];
    const std::string_view bytes = object.view();
    const std::size_t begin = byte_offset(bytes, index);
    return runtime.part(object.text(), {begin, begin + first_char(bytes.substr(begin)).bytes.size()});
}

// The result of Python's slice.indices(): first index, step, and number of items.
struct Indices {
    std::int64_t start, step, count;
};

std::int64_t slice_index(const Value& value, std::int64_t otherwise) {
    if (value.is_none()) return otherwise;
    if (!value.is_integral()) fail("slice indices must be integers or None or have an __index__ method");
    return value.integer();
}

Indices indices(const Value& start, const Value& stop, const Value& step, std::int64_t length) {
    // A step longer than the sequence takes at most one item, whatever the step is. So it is limited, and -by below
    // cannot overflow.
    const std::int64_t by = std::clamp(slice_index(step, 1), -length - 1, length + 1);
    if (by == 0) fail("slice step cannot be zero");
    const bool forwards = by > 0;
    const std::int64_t low = forwards ? 0 : -1;
    const std::int64_t high = forwards ? length : length - 1;
    const auto bound = [&](const Value& value, std::int64_t otherwise) {
        if (value.is_none()) return otherwise;
        const std::int64_t index = slice_index(value, 0);
        return std::clamp(index < 0 ? index + length : index, low, high);
    };
    const std::int64_t first = bound(start, forwards ? low : high);
    const std::int64_t last = bound(stop, forwards ? high : low);
    const std::int64_t distance = forwards ? last - first : first - last;
    return {first, by, distance <= 0 ? 0 : (distance - 1) / (forwards ? by : -by) + 1};
}

Value slice_text(Runtime& runtime, const Text& text, const Indices& slice) {
    const std::string_view bytes = text.bytes();
    if (slice.step == 1) {
        const std::size_t begin = byte_offset(bytes, slice.start);
        return runtime.part(text, {begin, begin + byte_offset(bytes.substr(begin), slice.count)});
    }
    // Backwards or with gaps: needs the byte offsets of all characters, four bytes each.
    runtime.account().check(2 * (bytes.size() + 1) * sizeof(std::uint32_t));
    std::vector<std::uint32_t> begins{0};
    for (std::string_view rest = bytes; !rest.empty();) {
        take_char(rest);
        begins.push_back(static_cast<std::uint32_t>(bytes.size() - rest.size()));
    }
    TextBuilder out = runtime.builder();
    for (std::int64_t i = 0; i < slice.count; ++i) {
        const auto at = static_cast<std::size_t>(slice.start + i * slice.step);
        out.append(text.marked, {begins[at], begins[at + 1]});
    }
    return runtime.text(out);
}

}  // namespace

std::optional<Value> own_attribute(Runtime& runtime, const Value& object, std::string_view name) {
    if (object.is(Kind::Object)) return object.object().attribute(runtime, name);
    if (const Builtin* method = find_method(object, name)) return function_value(runtime, *method, object);
    if (object.is(Kind::Tuple) && object.sequence().is_group && (name == "grouper" || name == "list"))
        return object.items()[name == "grouper" ? 0 : 1];
    return std::nullopt;
}

Value get_attribute(Runtime& runtime, const Value& object, const Value& name) {
    refuse_undefined(object);
    if (auto value = own_attribute(runtime, object, name.view())) return std::move(*value);
    if (object.is(Kind::Dict))
        if (const Value* value = object.dict().find(name, &runtime)) return *value;
    return runtime.undefined({Undefined::Of::Attribute, std::string(name.view()), type_name(object)});
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
    refuse_undefined(object);
    if (auto value = element(runtime, object, key)) return std::move(*value);
    if (!key.is_text()) return runtime.undefined({Undefined::Of::Element, shown(key), type_name(object)});
    if (auto value = own_attribute(runtime, object, key.view())) return std::move(*value);
    return runtime.undefined({Undefined::Of::Attribute, std::string(key.view()), type_name(object)});
}

bool can_slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
    const auto is_bound = [](const Value& value) { return value.is_none() || value.is_integral(); };
    return (object.is_text() || object.is_indexable()) && is_bound(start) && is_bound(stop) && is_bound(step);
}

Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step) {
    refuse_undefined(object);
    if (object.is(Kind::Dict)) fail("unhashable type: 'slice'");
    if (!object.is_text() && !object.is_indexable()) fail("'{}' object is not subscriptable", type_name(object));
    const Indices slice = indices(start, stop, step, *length_of(runtime, object));
    if (object.is_text()) return slice_text(runtime, object.text(), slice);
    std::vector<Value> items;
    runtime.check_items(slice.count);
    items.reserve(slice.count);
    for (std::int64_t i = 0; i < slice.count; ++i) items.push_back(object.items()[slice.start + i * slice.step]);
    return runtime.sequence(object.is(Kind::Range) ? Kind::List : object.kind(), std::move(items));
}

}  // namespace slipstream::jinja
