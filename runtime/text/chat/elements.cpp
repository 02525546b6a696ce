// Attributes, elements and slices of values.
#include <algorithm>

#include "runtime/text/chat/builtin.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

// What has elements by number.
bool is_indexable(const Value& value) {
    return value.is(Kind::List) || value.is(Kind::Tuple) || value.is(Kind::Range);
}

// obj[key]: nothing where Python raises TypeError or LookupError.
std::optional<Value> element(Runtime& runtime, const Value& object, const Value& key) {
    if (object.is(Kind::Dict)) {
        if (!is_hashable(key)) return std::nullopt;
        const Value* value = object.dict().find(key);
        return value == nullptr ? std::nullopt : std::optional(*value);
    }
    if (!key.is_integral() || !(object.is_text() || is_indexable(object))) return std::nullopt;
    const std::int64_t length = *length_of(object);
    const std::int64_t index = key.integer() < 0 ? key.integer() + length : key.integer();
    if (index < 0 || index >= length) return std::nullopt;
    if (!object.is_text()) return object.items()[static_cast<std::size_t>(index)];
    const Text& text = object.text();
    if (!text.is_ascii()) runtime.spend_chars(text.bytes().size());
    const std::size_t begin = text.is_ascii() ? static_cast<std::size_t>(index) : byte_offset(text.bytes(), index);
    return runtime.part(text, {begin, begin + first_char(text.bytes().substr(begin)).bytes.size()});
}

// getattr(): nothing where Python raises AttributeError.
std::optional<Value> attribute(Runtime& runtime, const Value& object, std::string_view name) {
    if (object.is(Kind::Object)) return object.object().attribute(runtime, name);
    if (const Builtin* method = find_method(object, name)) return bound_method(runtime, *method, object);
    return std::nullopt;
}

// Python's slice.indices(): where to start, the step, and how many.
struct Indices {
    std::int64_t start, step, count;
};

std::int64_t bound(const Value& value, std::int64_t length, std::int64_t low, std::int64_t high,
                   std::int64_t otherwise) {
    if (value.is_none()) return otherwise;
    if (!value.is_integral()) fail("slice indices must be integers or None or have an __index__ method");
    const std::int64_t index = value.integer() < 0 ? value.integer() + length : value.integer();
    return std::clamp(index, low, high);
}

Indices indices(const Value& start, const Value& stop, const Value& step, std::int64_t length) {
    if (!step.is_none() && !step.is_integral())
        fail("slice indices must be integers or None or have an __index__ method");
    // A step beyond the length takes one item whatever its size; so cut, it cannot overflow below.
    const std::int64_t by = step.is_none() ? 1 : std::clamp(step.integer(), -length - 1, length + 1);
    if (by == 0) fail("slice step cannot be zero");
    const bool forwards = by > 0;
    const std::int64_t low = forwards ? 0 : -1;
    const std::int64_t high = forwards ? length : length - 1;
    const std::int64_t first = bound(start, length, low, high, forwards ? low : high);
    const std::int64_t last = bound(stop, length, low, high, forwards ? high : low);
    const std::int64_t distance = forwards ? last - first : first - last;
    return {first, by, distance <= 0 ? 0 : (distance - 1) / (forwards ? by : -by) + 1};
}

Value slice_text(Runtime& runtime, const Text& text, const Indices& slice) {
    const std::string_view bytes = text.bytes();
    if (slice.step == 1 && text.is_ascii())
        return runtime.part(
            text, {static_cast<std::size_t>(slice.start), static_cast<std::size_t>(slice.start + slice.count)});
    runtime.spend_chars(bytes.size());
    if (slice.step == 1) {
        const std::size_t begin = byte_offset(bytes, slice.start);
        return runtime.part(text, {begin, begin + byte_offset(bytes.substr(begin), slice.count)});
    }
    // Backwards or with gaps: byte offsets of all characters, four bytes each at the most for a text of 8 MiB.
    runtime.account().check(static_cast<std::size_t>(text.n_chars() + 1) * sizeof(std::uint32_t));
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

Value get_attribute(Runtime& runtime, const Value& object, const Value& name) {
    refuse_undefined(object);
    if (auto value = attribute(runtime, object, name.view())) return std::move(*value);
    if (object.is(Kind::Dict))
        if (const Value* value = object.dict().find(name)) return *value;
    return runtime.undefined({.owner_type = owner_name(object), .name = std::string(name.view())});
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
    refuse_undefined(object);
    if (auto value = element(runtime, object, key)) return std::move(*value);
    if (!key.is_text()) return runtime.undefined({.owner_type = owner_name(object), .key = shown(key)});
    if (auto value = attribute(runtime, object, key.view())) return std::move(*value);
    return runtime.undefined({.owner_type = owner_name(object), .name = std::string(key.view())});
}

Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step) {
    refuse_undefined(object);
    if (object.is_text())
        return slice_text(runtime, object.text(), indices(start, stop, step, object.text().n_chars()));
    if (object.is(Kind::Dict)) fail("unhashable type: 'slice'");
    if (!is_indexable(object)) fail("'{}' object is not subscriptable", type_name(object));
    const Indices slice = indices(start, stop, step, *length_of(object));
    std::vector<Value> items;
    items.reserve(static_cast<std::size_t>(slice.count));
    for (std::int64_t i = 0; i < slice.count; ++i)
        items.push_back(object.items()[static_cast<std::size_t>(slice.start + i * slice.step)]);
    return runtime.sequence(object.is(Kind::Range) ? Kind::List : object.kind(), std::move(items));
}

}  // namespace slipstream::jinja
