// Filters that fit text into HTML, URLs and JSON.
#include <fmt/format.h>

#include "runtime/text/chat/arguments.h"
#include "runtime/text/chat/filter_bodies.h"
#include "runtime/text/chat/json_text.h"
#include "runtime/text/chat/markup.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja::filters {

namespace {

constexpr std::int64_t kMaxIndent = 1000;

std::string url_quoted(Runtime& runtime, const Value& value, std::string_view safe, std::string_view space) {
    const Value text = to_text(runtime, value);
    runtime.spend_for(text);
    std::string out;
    for (const char c : text.view()) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                           c == '.' || c == '-' || c == '~' || safe.find(c) != std::string_view::npos;
        if (plain) {
            out.push_back(c);
        } else if (c == ' ') {
            out += space;
        } else {
            out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
        }
    }
    return out;
}

std::string indent_of(const Value& value) {
    if (value.is_text()) return std::string(value.view());
    const std::int64_t width = int_of(value, "tojson() indent");
    if (width > kMaxIndent) fail("an indent of more than {}", kMaxIndent);
    return std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
}

}  // namespace

Value safe(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("safe", arguments, {}, 0));
    return runtime.markup(std::string(to_text(runtime, input).view()));
}

Value escaped(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("escape", arguments, {}, 0));
    return escape(runtime, input);
}

Value force_escaped(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("forceescape", arguments, {}, 0));
    return escape(runtime, Value(std::string(to_text(runtime, input).view())));
}

Value url_encoded(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("urlencode", arguments, {}, 0));
    if (input.is_text() || !is_iterable(input)) return runtime.text(url_quoted(runtime, input, "/", "%20"));
    const Value pairs = input.is(Kind::Dict) ? Value(runtime.make<DictView>(input, DictView::Part::Items)) : input;
    TextBuilder out = runtime.builder();
    for (const Value& pair : to_items(runtime, pairs)) {
        const std::vector<Value> parts = to_items(runtime, pair);
        if (parts.size() != 2) fail("urlencode takes pairs");
        if (out.size() > 0) out.append('&');
        out.append(url_quoted(runtime, parts[0], "", "+"));
        out.append('=');
        out.append(url_quoted(runtime, parts[1], "", "+"));
    }
    return runtime.text(out.take());
}

Value xml_attributes(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto given = bind("xmlattr", arguments, {"autospace"}, 0);
    if (!input.is(Kind::Dict)) fail("xmlattr takes a mapping, not {}", type_name(input));
    TextBuilder out = runtime.builder();
    for (const auto& [key, value] : input.dict().items()) {
        if (value.is_none() || value.is_undefined()) continue;
        const std::string_view name = text_of(key, "an attribute's name");
        if (name.find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos)
            fail("Invalid character in attribute name: {}", quoted(name));
        if (out.size() > 0 || truth_or(given[0], true)) out.append(' ');
        out.append(escape(runtime, key).view());
        out.append("=\"");
        out.append(escape(runtime, value).view());
        out.append('"');
    }
    return runtime.text(out.take());
}

Value to_json(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto given = bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
    JsonStyle style;
    if (truth_or(given[0], false)) style.characters = JsonCharacters::AsciiOnly;
    if (truth_or(given[3], false)) style.keys = JsonKeys::Sorted;
    if (is_given_and_some(given[1])) {
        style.indent = indent_of(given[1]);
        style.item_separator.assign(1, ',');
    }
    if (is_given_and_some(given[2])) {
        const std::vector<Value> separators = to_items(runtime, given[2]);
        if (separators.size() != 2) fail("tojson() takes two separators, not {}", separators.size());
        style.item_separator = text_of(separators[0], "a separator");
        style.key_separator = text_of(separators[1], "a separator");
    }
    TextBuilder out = runtime.builder();
    write_json(runtime, out, input, style);
    return runtime.text(out.take());
}

}  // namespace slipstream::jinja::filters
