#include "runtime/text/chat/attributes.h"

#include <algorithm>
#include <array>
#include <optional>

#include "runtime/text/chat/methods.h"
#include "runtime/text/chat/objects.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

constexpr std::array<std::string_view, 8> kListChangers = {"append", "clear",  "extend",  "insert",
                                                           "pop",    "remove", "reverse", "sort"};
constexpr std::array<std::string_view, 5> kDictChangers = {"clear", "pop", "popitem", "setdefault", "update"};

bool changes(const Value& object, std::string_view name) {
    if (object.is(Kind::List))
        return std::find(kListChangers.begin(), kListChangers.end(), name) != kListChangers.end();
    return object.is(Kind::Dict) && std::find(kDictChangers.begin(), kDictChangers.end(), name) != kDictChangers.end();
}

// getattr(): nothing where Python raises AttributeError.
std::optional<Value> attribute(Runtime& runtime, const Value& object, std::string_view name) {
    if (changes(object, name))
        return Value::undefined(
            {.hint = fmt::format("access to attribute {} of '{}' object is unsafe.", quoted(name), type_name(object))});
    switch (object.kind()) {
        case Kind::Text:
            return text_method(runtime, object, name);
        case Kind::List:
        case Kind::Tuple:
            return sequence_attribute(runtime, object, name);
        case Kind::Dict:
            return dict_method(runtime, object, name);
        case Kind::Bool:
        case Kind::Int:
        case Kind::Float:
            return number_attribute(runtime, object, name);
        case Kind::Object:
            return object.object().attribute(runtime, name);
        default:
            return std::nullopt;
    }
}

std::optional<Value> character(Runtime& runtime, const Text& text, std::int64_t index) {
    const std::string_view bytes = text.bytes;
    if (text.is_ascii()) return runtime.text(std::string(1, bytes[static_cast<std::size_t>(index)]), text);
    runtime.spend(index / 16 + 1);
    return runtime.text(std::string(first_char(bytes.substr(byte_offset(bytes, index))).bytes), text);
}

// obj[key]: nothing where Python raises TypeError or LookupError.
std::optional<Value> element(Runtime& runtime, const Value& object, const Value& key) {
    if (object.is(Kind::Dict)) {
        if (!is_hashable(key)) return std::nullopt;
        runtime.spend_for(key);
        const Value* value = object.dict().find(key);
        return value == nullptr ? std::nullopt : std::optional(*value);
    }
    if (object.is(Kind::Object)) return object.object().element(runtime, key);
    if (!key.is_integral() || !(object.is_text() || object.is_sequence())) return std::nullopt;
    const std::int64_t length =
        object.is_text() ? object.text().n_chars : static_cast<std::int64_t>(object.items().size());
    const std::int64_t index = key.integer() < 0 ? key.integer() + length : key.integer();
    if (index < 0 || index >= length) return std::nullopt;
    if (object.is_text()) return character(runtime, object.text(), index);
    return object.items()[static_cast<std::size_t>(index)];
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
    runtime.spend(static_cast<std::int64_t>(text.bytes.size() / 16) + 1);
    const std::string_view bytes = text.bytes;
    if (slice.count == 0) return runtime.text("", text);
    if (slice.step == 1) {
        const auto offset = [&](std::int64_t index) {
            return text.is_ascii() ? static_cast<std::size_t>(index) : byte_offset(bytes, index);
        };
        const std::size_t begin = offset(slice.start);
        return runtime.text(std::string(bytes.substr(begin, offset(slice.start + slice.count) - begin)), text);
    }
    runtime.spend(text.n_chars);
    std::vector<std::string_view> chars;
    for (std::string_view rest = bytes; !rest.empty();) chars.push_back(take_char(rest).bytes);
    std::string out;
    for (std::int64_t i = 0; i < slice.count; ++i)
        out.append(chars[static_cast<std::size_t>(slice.start + i * slice.step)]);
    return runtime.text(std::move(out), text);
}

Value slice_sequence(Runtime& runtime, const Value& sequence, const Indices& slice) {
    runtime.spend(slice.count);
    std::vector<Value> items;
    items.reserve(static_cast<std::size_t>(slice.count));
    for (std::int64_t i = 0; i < slice.count; ++i)
        items.push_back(sequence.items()[static_cast<std::size_t>(slice.start + i * slice.step)]);
    return sequence.is(Kind::List) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
}

}  // namespace

Value get_attribute(Runtime& runtime, const Value& object, std::string_view name) {
    refuse_undefined(object);
    if (auto value = attribute(runtime, object, name)) return std::move(*value);
    if (object.is(Kind::Dict))
        if (const Value* value = object.dict().find(name)) return *value;
    return Value::undefined({.owner_type = owner_name(object), .name = std::string(name)});
}

Value get_attribute_only(Runtime& runtime, const Value& object, std::string_view name) {
    refuse_undefined(object);
    if (auto value = attribute(runtime, object, name)) return std::move(*value);
    return Value::undefined({.owner_type = owner_name(object), .name = std::string(name)});
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
    refuse_undefined(object);
    if (auto value = element(runtime, object, key)) return std::move(*value);
    if (!key.is_text()) return Value::undefined({.owner_type = owner_name(object), .key = shown(key)});
    if (auto value = attribute(runtime, object, key.view())) return std::move(*value);
    return Value::undefined({.owner_type = owner_name(object), .name = std::string(key.view())});
}

Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step) {
    refuse_undefined(object);
    if (object.is_text()) return slice_text(runtime, object.text(), indices(start, stop, step, object.text().n_chars));
    if (object.is_sequence())
        return slice_sequence(runtime, object,
                              indices(start, stop, step, static_cast<std::int64_t>(object.items().size())));
    if (object.is(Kind::Object)) {
        if (const auto* range = dynamic_cast<const Range*>(&object.object())) {
            const Indices slice = indices(start, stop, step, range->size());
            return Value(runtime.make<Range>(range->at(slice.start), range->at(slice.start + slice.count * slice.step),
                                             range->step() * slice.step));
        }
    }
    if (object.is(Kind::Dict)) fail("unhashable type: 'slice'");
    fail("'{}' object is not subscriptable", type_name(object));
}

}  // namespace slipstream::jinja
