// Filters that make text from text. As in Jinja most spell any value as text first.
#include <algorithm>

#include "runtime/text/chat/arguments.h"
#include "runtime/text/chat/filter_bodies.h"
#include "runtime/text/chat/methods.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_format.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja::filters {

namespace {

constexpr std::int64_t kTruncateLeeway = 5;

// A method of str on the input as text.
Value method(Runtime& runtime, const Value& input, std::string_view name, Arguments arguments) {
    const Value bound = *text_method(runtime, to_text(runtime, input), name);
    return bound.object().call(runtime, arguments);
}

// Letters after these begin a word (Jinja's title filter: [-\s({\[<]+).
bool separates_words(char32_t code) {
    return code == '-' || code == '(' || code == '{' || code == '[' || code == '<' || is_space(code);
}

std::vector<std::string_view> lines_of(std::string_view text) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        std::string_view after = text;
        while (!after.empty() && !is_line_break(first_char(after).code)) take_char(after);
        lines.push_back(text.substr(0, text.size() - after.size()));
        if (!after.empty() && take_char(after).code == '\r' && after.starts_with('\n')) take_char(after);
        text = after;
    }
    return lines;
}

}  // namespace

Value upper(Runtime& runtime, const Value& input, const Arguments& arguments) {
    return method(runtime, input, "upper", arguments);
}
Value lower(Runtime& runtime, const Value& input, const Arguments& arguments) {
    return method(runtime, input, "lower", arguments);
}
Value capitalized(Runtime& runtime, const Value& input, const Arguments& arguments) {
    return method(runtime, input, "capitalize", arguments);
}
Value trim(Runtime& runtime, const Value& input, const Arguments& arguments) {
    return method(runtime, input, "strip", arguments);
}

Value title(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("title", arguments, {}, 0));
    const Value text = to_text(runtime, input);
    runtime.spend_for(text);
    std::string out;
    std::string_view rest = text.view();
    while (!rest.empty()) {
        // A run of separators, then a word: the first character of each up, the others down.
        const bool separators = separates_words(first_char(rest).code);
        std::string_view after = rest;
        while (!after.empty() && separates_words(first_char(after).code) == separators) take_char(after);
        const std::string_view run = rest.substr(0, rest.size() - after.size());
        const std::size_t head = first_char(run).bytes.size();
        out += to_upper(run.substr(0, head)) + to_lower(run.substr(head));
        rest = after;
    }
    return runtime.text(std::move(out));
}

Value replace(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto given = bind("replace", arguments, {"old", "new", "count"}, 2);
    const std::int64_t count = is_given_and_some(given[2]) ? int_of(given[2], "replace() count") : -1;
    // Marks are lost: the filter works on str().
    const Value text(std::string(to_text(runtime, input).view()));
    return replace_text(runtime, text, to_text(runtime, given[0]).view(), to_text(runtime, given[1]), count);
}

Value indent(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto given = bind("indent", arguments, {"width", "first", "blank"}, 0);
    const std::string_view text = text_of(input, "the input of indent");
    TextBuilder margin = runtime.builder();
    if (given[0].is_text()) {
        margin.append(given[0].view());
    } else {
        margin.repeat(int_or(given[0], 4, "indent() width"), " ");
    }
    runtime.spend_for(input);
    const std::string ended = std::string(text) + "\n";  // the last line counts, also where it is empty
    TextBuilder out = runtime.builder();
    if (truth_or(given[1], false)) out.append(margin.text());
    bool first = true;
    for (const std::string_view line : lines_of(ended)) {
        if (!first) {
            out.append('\n');
            if (!line.empty() || truth_or(given[2], false)) out.append(margin.text());
        }
        first = false;
        out.append(line);
    }
    return runtime.text(out.take(), input.text());
}

Value truncate(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto given = bind("truncate", arguments, {"length", "killwords", "end", "leeway"}, 0);
    const std::int64_t length = int_or(given[0], 255, "truncate() length");
    const std::string_view end = is_given(given[2]) ? text_of(given[2], "truncate() end") : "...";
    const std::int64_t leeway = is_given_and_some(given[3]) ? int_of(given[3], "truncate() leeway") : kTruncateLeeway;
    const std::int64_t kept = length - count_chars(end);
    if (kept < 0) fail("expected length >= {}, got {}", count_chars(end), length);
    if (leeway < 0) fail("expected leeway >= 0, got {}", leeway);
    // Compared this way round since a length may be as large as it likes.
    const auto has = length_of(runtime, input);
    if (has && *has - leeway <= length) return input;
    const std::string_view text = text_of(input, "the input of truncate");
    runtime.spend_for(input);
    std::string_view head = text.substr(0, byte_offset(text, kept));
    if (!truth_or(given[1], false)) head = head.substr(0, head.rfind(' '));
    return runtime.text(std::string(head) + std::string(end), input.text());
}

Value center(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const Value width = bind("center", arguments, {"width"}, 0)[0];
    return method(runtime, input, "center", {{is_given(width) ? width : Value(80)}, {}});
}

Value word_count(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("wordcount", arguments, {}, 0));
    const Value text = to_text(runtime, input);
    runtime.spend_for(text);
    std::int64_t n = 0;
    bool in_word = false;
    for (std::string_view rest = text.view(); !rest.empty();) {
        const bool word = is_word(take_char(rest).code);
        n += word && !in_word ? 1 : 0;
        in_word = word;
    }
    return Value(n);
}

Value string(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("string", arguments, {}, 0));
    return to_text(runtime, input);
}

Value format(Runtime& runtime, const Value& input, const Arguments& arguments) {
    if (!arguments.positional.empty() && !arguments.named.empty())
        fail("can't handle positional and keyword arguments at the same time");
    const Value text = to_text(runtime, input);
    if (arguments.named.empty()) return format_percent(runtime, text, runtime.tuple(arguments.positional));
    Dict named;
    for (const auto& [name, value] : arguments.named) named.set(name, value);
    return format_percent(runtime, text, runtime.dict(std::move(named)));
}

}  // namespace slipstream::jinja::filters
