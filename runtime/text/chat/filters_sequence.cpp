// Filters that take a sequence as a whole.
#include "runtime/text/chat/arguments.h"
#include "runtime/text/chat/attribute_path.h"
#include "runtime/text/chat/filter_bodies.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja::filters {

namespace {

// reversed(value), or null for what Python cannot read backwards.
std::shared_ptr<Iterator> reversed(Runtime& runtime, const Value& value) {
    if (value.is_undefined()) return iterate(runtime, value);
    const bool known = value.is_sequence() || value.is(Kind::Dict) ||
                       (value.is(Kind::Object) && (dynamic_cast<const Range*>(&value.object()) != nullptr ||
                                                   dynamic_cast<const DictView*>(&value.object()) != nullptr));
    if (!known) return nullptr;
    return runtime.make<ItemIterator>(value, ItemIterator::Direction::Backwards);
}

std::string reversed_text(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const Char c = last_char(text);
        out.append(c.bytes);
        text.remove_suffix(c.bytes.size());
    }
    return out;
}

}  // namespace

Value length(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("length", arguments, {}, 0));
    const auto length = length_of(runtime, input);
    if (!length) fail("object of type '{}' has no len()", type_name(input));
    return Value(*length);
}

Value first(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("first", arguments, {}, 0));
    auto item = iterate(runtime, input)->next(runtime);
    return item ? std::move(*item) : Value::undefined({.hint = "No first item, sequence was empty."});
}

Value last(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("last", arguments, {}, 0));
    const Value nothing = Value::undefined({.hint = "No last item, sequence was empty."});
    if (input.is_text()) {
        if (input.view().empty()) return nothing;
        return runtime.text(std::string(last_char(input.view()).bytes), input.text());
    }
    const auto iterator = reversed(runtime, input);
    if (!iterator) fail("'{}' object is not reversible", type_name(input));
    auto item = iterator->next(runtime);
    return item ? std::move(*item) : nothing;
}

Value list(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("list", arguments, {}, 0));
    return runtime.list(to_items(runtime, input));
}

Value join(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto given = bind("join", arguments, {"d", "attribute"}, 0);
    const Value separator = is_given(given[0]) ? to_text(runtime, given[0]) : Value("");
    const AttributePath path(given[1]);
    TextBuilder out = runtime.builder();
    const auto iterator = iterate(runtime, input);
    for (bool is_first = true; auto item = iterator->next(runtime); is_first = false) {
        if (!is_first) out.append(separator.view());
        const Value value = path.of(runtime, std::move(*item));
        runtime.spend_for(value);
        write_str(out, value);
    }
    return runtime.text(out.take());
}

Value reverse(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("reverse", arguments, {}, 0));
    if (input.is_text()) {
        runtime.spend_for(input);
        return runtime.text(reversed_text(input.view()), input.text());
    }
    if (auto iterator = reversed(runtime, input)) return Value(std::static_pointer_cast<Object>(iterator));
    if (!is_iterable(input)) fail("argument must be iterable");
    std::vector<Value> values = to_items(runtime, input);
    return runtime.list({values.rbegin(), values.rend()});
}

Value sum(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto given = bind("sum", arguments, {"attribute", "start"}, 0);
    const AttributePath path(given[0]);
    Value total = is_given(given[1]) ? given[1] : Value(0);
    if (total.is_text()) fail("sum() can't sum strings [use ''.join(seq) instead]");
    const auto iterator = iterate(runtime, input);
    while (auto item = iterator->next(runtime))
        total = arithmetic(runtime, Arithmetic::Add, total, path.of(runtime, std::move(*item)));
    return total;
}

}  // namespace slipstream::jinja::filters
