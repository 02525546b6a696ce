// Methods of dict, list and tuple that change nothing, and the attributes of numbers.
#include <algorithm>

#include "runtime/text/chat/arguments.h"
#include "runtime/text/chat/methods.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

template <DictView::Part part>
Value view_of(Runtime& runtime, const Value& self, Arguments& arguments) {
    static_cast<void>(bind("dict view", arguments, {}, 0));
    return Value(runtime.make<DictView>(self, part));
}

Value get(Runtime& runtime, const Value& self, Arguments& arguments) {
    const auto given = bind("get", arguments, {"", ""}, 1);
    if (!is_hashable(given[0])) fail("unhashable type: '{}'", type_name(given[0]));
    runtime.spend_for(given[0]);
    if (const Value* value = self.dict().find(given[0])) return *value;
    return is_given(given[1]) ? given[1] : Value::none();
}

Value copy(Runtime& /*runtime*/, const Value& self, Arguments& arguments) {
    static_cast<void>(bind("copy", arguments, {}, 0));
    return self;  // nothing can tell it from a copy, but `is sameas`
}

Value from_keys(Runtime& runtime, const Value& /*self*/, Arguments& arguments) {
    const auto given = bind("fromkeys", arguments, {"", ""}, 1);
    Dict result;
    for (Value& key : to_items(runtime, given[0])) {
        if (!is_hashable(key)) fail("unhashable type: '{}'", type_name(key));
        runtime.spend_for(key);
        result.set(std::move(key), is_given(given[1]) ? given[1] : Value::none());
    }
    return runtime.dict(std::move(result));
}

Value count(Runtime& runtime, const Value& self, Arguments& arguments) {
    const auto given = bind("count", arguments, {""}, 1);
    std::int64_t n = 0;
    for (const Value& item : self.items()) n += compare(runtime, Comparison::Equal, item, given[0]) ? 1 : 0;
    return Value(n);
}

Value index(Runtime& runtime, const Value& self, Arguments& arguments) {
    const auto given = bind("index", arguments, {"", "", ""}, 1);
    const auto length = static_cast<std::int64_t>(self.items().size());
    const auto place = [&](const Value& value, std::int64_t otherwise) {
        const std::int64_t at = int_or(value, otherwise, "slice index");
        return std::clamp<std::int64_t>(at < 0 ? at + length : at, 0, length);
    };
    const std::int64_t stop = place(given[2], length);
    for (std::int64_t i = place(given[1], 0); i < stop; ++i)
        if (compare(runtime, Comparison::Equal, self.items()[static_cast<std::size_t>(i)], given[0])) return Value(i);
    fail("{} is not in list", shown(given[0]));
}

Value bit_length(Runtime& /*runtime*/, const Value& self, Arguments& arguments) {
    static_cast<void>(bind("bit_length", arguments, {}, 0));
    std::int64_t n = 0;
    for (std::uint64_t rest = self.integer() < 0 ? ~static_cast<std::uint64_t>(self.integer()) + 1
                                                 : static_cast<std::uint64_t>(self.integer());
         rest != 0; rest >>= 1U)
        ++n;
    return Value(n);
}

Value is_integer(Runtime& /*runtime*/, const Value& self, Arguments& arguments) {
    static_cast<void>(bind("is_integer", arguments, {}, 0));
    return Value(exact_integer(self.real()).has_value());
}

Value method(Runtime& runtime, std::string_view name, Function::Body body, const Value& self) {
    return Value(runtime.make<Function>(name, body, self));
}

}  // namespace

std::optional<Value> dict_method(Runtime& runtime, const Value& dict, std::string_view name) {
    if (name == "items") return method(runtime, "items", view_of<DictView::Part::Items>, dict);
    if (name == "keys") return method(runtime, "keys", view_of<DictView::Part::Keys>, dict);
    if (name == "values") return method(runtime, "values", view_of<DictView::Part::Values>, dict);
    if (name == "get") return method(runtime, "get", get, dict);
    if (name == "copy") return method(runtime, "copy", copy, dict);
    if (name == "fromkeys") return method(runtime, "fromkeys", from_keys, dict);
    return std::nullopt;
}

std::optional<Value> sequence_attribute(Runtime& runtime, const Value& sequence, std::string_view name) {
    if (sequence.sequence().is_group) {
        if (name == "grouper") return sequence.items()[0];
        if (name == "list") return sequence.items()[1];
    }
    if (name == "count") return method(runtime, "count", count, sequence);
    if (name == "index") return method(runtime, "index", index, sequence);
    if (name == "copy" && sequence.is(Kind::List)) return method(runtime, "copy", copy, sequence);
    return std::nullopt;
}

std::optional<Value> number_attribute(Runtime& runtime, const Value& number, std::string_view name) {
    const Value plain = number.is(Kind::Float) ? number : Value(number.integer());
    if (name == "real") return plain;
    if (name == "imag") return number.is(Kind::Float) ? Value(0.0) : Value(0);
    if (number.is(Kind::Float)) {
        if (name == "is_integer") return method(runtime, "is_integer", is_integer, number);
        return std::nullopt;
    }
    if (name == "numerator") return plain;
    if (name == "denominator") return Value(1);
    if (name == "bit_length") return method(runtime, "bit_length", bit_length, number);
    return std::nullopt;
}

}  // namespace slipstream::jinja
