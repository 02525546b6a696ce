// Filters that make text, and what is made of text. As in Jinja most spell any value as text first.
#include <algorithm>
#include <cmath>

#include "runtime/text/chat/builtin.h"
#include "runtime/text/chat/json_text.h"
#include "runtime/text/chat/numbers.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/text_work.h"

namespace slipstream::jinja {

namespace {

template <LetterCase to>
Value mapped(Runtime& runtime, const Value& input, const Given& /*given*/) {
    return map_text(runtime, to_text(runtime, input), to);
}

Value capitalize(Runtime& runtime, const Value& input, const Given& /*given*/) {
    return capitalize_text(runtime, to_text(runtime, input));
}

Value trim(Runtime& runtime, const Value& input, const Given& given) {
    return strip_text(runtime, to_text(runtime, input), Ends::Both, given);
}

// Letters after these begin a word (Jinja's title filter: [-\s({\[<]+).
bool separates_words(char32_t code) {
    return code == '-' || code == '(' || code == '{' || code == '[' || code == '<' || is_space(code);
}

Value title(Runtime& runtime, const Value& input, const Given& /*given*/) {
    const Value text = to_text(runtime, input);
    runtime.spend_chars(text.view().size());
    TextBuilder out = runtime.builder();
    bool in_run = false;  // a run of separators or a word: its first character goes up, the others down
    bool separators = false;
    for (std::size_t at = 0; at < text.view().size();) {
        const Char c = first_char(text.view().substr(at));
        in_run = in_run && separates_words(c.code) == separators;
        separators = separates_words(c.code);
        append_mapped(out, text.text().marked, {at, at + c.bytes.size()},
                      in_run ? LetterCase::Lower : LetterCase::Upper);
        in_run = true;
        at += c.bytes.size();
    }
    return runtime.text(out);
}

Value replace(Runtime& runtime, const Value& input, const Given& given) {
    const Value from = to_text(runtime, given[0]);
    const Value to = to_text(runtime, given[1]);
    const std::int64_t count = given.has_some(2) ? given.integer(2, -1, "replace() count") : -1;
    return replace_text(runtime, to_text(runtime, input), from.text(), to.text(), count);
}

Value indent(Runtime& runtime, const Value& input, const Given& given) {
    refuse_undefined(input);
    if (!input.is_text()) fail("the input of indent must be str, not {}", type_name(input));
    TextBuilder margin = runtime.builder();
    if (given[0].is_text())
        margin.append(given[0].text().marked);
    else
        margin.repeat(given.integer(0, 4, "indent() width"), {" ", {}});
    runtime.spend_chars(input.view().size());
    TextBuilder out = runtime.builder();
    if (given.truth(1, false)) out.append(margin.text());
    const std::string ended = std::string(input.view()) + "\n";  // the last line counts, also where it is empty
    bool is_first = true;
    for (const auto& [line, end] : lines_of(runtime, ended)) {
        runtime.spend_bytes(margin.text().bytes.size());
        if (!std::exchange(is_first, false)) {
            out.append('\n');
            if (line.begin < line.end || given.truth(2, false)) out.append(margin.text());
        }
        out.append(input.text().marked, line);
    }
    return runtime.text(out);
}

Value string(Runtime& runtime, const Value& input, const Given& /*given*/) {
    return to_text(runtime, input);
}

// Nothing is escaped here but what is added to such a text.
Value safe(Runtime& runtime, const Value& input, const Given& /*given*/) {
    const Value text = to_text(runtime, input);
    const Value made = runtime.text(MarkedText(text.text().marked));
    static_cast<Text*>(made.cell())->is_safe = true;
    return made;
}

Value to_json(Runtime& runtime, const Value& input, const Given& given) {
    JsonStyle style{.item_separator = {given.has_some(1) ? "," : ", ", {}}, .key_separator = {": ", {}}};
    style.is_ascii = given.truth(0, false);
    if (given[1].is_text())
        style.indent = given[1].text().marked;
    else if (given.has_some(1))
        style.indent = MarkedText{std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(
                                                  given.integer(1, 0, "tojson() indent"), 0, 1000)),
                                              ' '),
                                  {}};
    if (given.has_some(2)) {
        const std::vector<Value> separators = to_items(runtime, given[2]);
        if (separators.size() != 2 || !separators[0].is_text() || !separators[1].is_text())
            fail("tojson() separators must be two texts");
        style.item_separator = separators[0].text().marked;
        style.key_separator = separators[1].text().marked;
    }
    style.sorts_keys = given.truth(3, false);
    TextBuilder out = runtime.builder();
    write_json(runtime, out, input, style);
    return runtime.text(out);
}

Value from_json(Runtime& runtime, const Value& input, const Given& /*given*/) {
    refuse_undefined(input);
    if (!input.is_text()) fail("the input of from_json must be str, not {}", type_name(input));
    const Origin origin = input.text().marked.said.empty() ? Origin::Template : Origin::Said;
    return parse_json(input.view(), "from_json", &runtime, origin);
}

Value integer(Runtime& runtime, const Value& input, const Given& given) {
    refuse_undefined(input);
    if (input.is(Kind::LongInt)) return input;
    if (input.is_integral()) return Value(input.integer());
    std::optional<double> number;
    if (input.is_text()) {
        runtime.spend_chars(input.view().size());
        if (const auto whole = parse_int(input.view())) return Value(*whole);
        number = parse_float(input.view());
    } else if (input.is(Kind::Float)) {
        number = input.real();
    }
    if (!number || *number != *number) return given.has(0) ? given[0] : Value(0);
    const auto whole = exact_integer(std::trunc(*number));
    if (!whole) fail("an integer leaves 64 bits, which is as large as they go here");
    return Value(*whole);
}

Value real(Runtime& runtime, const Value& input, const Given& given) {
    refuse_undefined(input);
    if (input.is_number()) return Value(input.real());
    if (input.is_text()) {
        runtime.spend_chars(input.view().size());
        if (const auto number = parse_float(input.view())) return Value(*number);
    }
    return given.has(0) ? given[0] : Value(0.0);
}

Value absolute(Runtime& /*runtime*/, const Value& input, const Given& /*given*/) {
    refuse_undefined(input);
    if (!input.is_number()) fail("bad operand type for abs(): '{}'", type_name(input));
    return input.real() < 0 ? unary_minus(input) : unary_plus(input);
}

Value otherwise(Runtime& /*runtime*/, const Value& input, const Given& given) {
    const bool is_there = given.truth(1, false) ? is_true(input) : !input.is_undefined();
    return is_there ? input : given.has(0) ? given[0] : Value("");
}

constexpr std::array<Builtin, 16> kFilters = {{
    {"abs", absolute},
    {"capitalize", capitalize},
    {"d", otherwise, {"default_value", "boolean"}},
    {"default", otherwise, {"default_value", "boolean"}},
    {"float", real, {"default"}},
    {"from_json", from_json},
    {"indent", indent, {"width", "first", "blank"}},
    {"int", integer, {"default"}},
    {"lower", mapped<LetterCase::Lower>},
    {"replace", replace, {"old", "new", "count"}, 2},
    {"safe", safe},
    {"string", string},
    {"title", title},
    {"tojson", to_json, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"trim", trim, {"chars"}},
    {"upper", mapped<LetterCase::Upper>},
}};

}  // namespace

std::span<const Builtin> text_filters() {
    return kFilters;
}

}  // namespace slipstream::jinja
