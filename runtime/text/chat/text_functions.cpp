// Methods of str, and the filters that make text. Python counts characters, the texts here are stored as bytes;
// positions are converted where arguments come in and results go out. Results keep the marks of the texts that they are
// made from. As in Jinja, most filters convert any value to a text first; a method is always called on a text.
#include <algorithm>

#include "runtime/text/chat/builtin.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/spelling.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

constexpr std::size_t kNowhere = std::string_view::npos;

// Turns a method into a filter: applies it to the text of any value.
template <Builtin::Body method>
Value spelt(Call& call) {
    call.self = to_text(call.runtime, call.self);
    return method(call);
}

// Returns the text with each character mapped to the case that `choose`(code point, its byte position) returns.
// `word_begin` is the byte position at which append_mapped() takes the text to begin; `choose` may change it.
template <typename Choose>
Value mapped(Call& call, Choose choose, const std::size_t& word_begin = 0) {
    call.runtime.spend_chars(2 * call.self.view().size());
    TextBuilder out = call.runtime.builder();
    for (std::size_t at = 0; at < call.self.view().size();) {
        const Char c = first_char(call.self.view().substr(at));
        const LetterCase to = choose(c.code, at);
        append_mapped(out, call.self.text().marked, {at, at + c.bytes.size()}, to, word_begin);
        at += c.bytes.size();
    }
    return call.runtime.text(out);
}

template <LetterCase to>
Value to_case(Call& call) {
    return mapped(call, [](char32_t, std::size_t) { return to; });
}

Value capitalize(Call& call) {
    bool is_first = true;
    return mapped(call, [&](char32_t, std::size_t) {
        return std::exchange(is_first, false) ? LetterCase::Title : LetterCase::Lower;
    });
}

// The method title(): a letter after a character that is not a letter begins a word.
Value title(Call& call) {
    bool in_word = false;
    return mapped(call, [&](char32_t code, std::size_t) {
        return std::exchange(in_word, is_lower(code) || is_upper(code)) ? LetterCase::Lower : LetterCase::Title;
    });
}

// The filter title: a character after one of [-\s({\[<] begins a word. Jinja maps the rest of a word on its own.
Value title_words(Call& call) {
    bool in_word = false;
    std::int64_t n_in_word = 0;  // characters of the word before this one
    std::size_t rest_begin = 0;
    call.self = to_text(call.runtime, call.self);
    const auto choose = [&](char32_t code, std::size_t at) {
        const bool separates =
            code == '-' || code == '(' || code == '{' || code == '[' || code == '<' || is_space(code);
        n_in_word = in_word ? n_in_word + 1 : 0;
        if (n_in_word <= 1) rest_begin = at;
        return std::exchange(in_word, !separates) ? LetterCase::Lower : LetterCase::Upper;
    };
    return mapped(call, choose, rest_begin);
}

// Removes characters from the given ends: those in the first argument, or white space if there is none.
template <Ends ends>
Value strip(Call& call) {
    const std::string_view text = call.self.view();
    const auto is_given = [&](const Char& c) {
        std::string_view chars = call.text(0).bytes();
        call.runtime.spend_chars(chars.size());
        while (!chars.empty())
            if (take_char(chars).bytes == c.bytes) return true;
        return false;
    };
    if (call.has_some(0)) static_cast<void>(call.text(0));
    const TextSpan span = call.has_some(0) ? stripped(text, ends, is_given) : stripped(text, ends);
    const std::size_t gone = text.size() - (span.end - span.begin);
    call.runtime.spend_chars(gone);
    return gone == 0 ? call.self : call.runtime.part(call.self.text(), span);
}

// Returns the byte ranges of the words of `text`, which are separated by white space.
std::vector<TextSpan> words(Runtime& runtime, std::string_view text) {
    std::vector<TextSpan> spans;
    TextSpan rest = stripped(text, Ends::Both);
    while (rest.begin < rest.end) {
        std::size_t end = rest.begin;
        while (end < rest.end && !is_space(first_char(text.substr(end)).code))
            end += first_char(text.substr(end)).bytes.size();
        runtime.check_items(2 * spans.size());
        spans.push_back({rest.begin, end});
        rest.begin = end + stripped(text.substr(0, rest.end).substr(end), Ends::Left).begin;
    }
    return spans;
}

// Returns the byte ranges of the parts of `text` between the occurrences of `separator`, which must not be empty.
std::vector<TextSpan> pieces(Runtime& runtime, std::string_view text, std::string_view separator) {
    std::vector<TextSpan> spans;
    std::size_t begin = 0;
    for (std::size_t found = 0; (found = find_text(text, separator, begin)) != kNowhere;
         begin = found + separator.size()) {
        runtime.check_items(2 * spans.size());
        spans.push_back({begin, found});
    }
    spans.push_back({begin, text.size()});
    return spans;
}

// split(sep, maxsplit): splits at the first `maxsplit` separators; the rest of the text stays in one part.
Value split(Call& call) {
    const std::string_view text = call.self.view();
    call.runtime.spend_chars(text.size());
    const bool by_words = !call.has_some(0);
    if (!by_words && call.text(0).bytes().empty()) fail("empty separator");
    std::vector<TextSpan> spans = by_words ? words(call.runtime, text) : pieces(call.runtime, text, call[0].view());
    const std::int64_t max = call.integer(1, -1);
    if (max >= 0 && max + 1 < std::ssize(spans)) {
        spans.resize(static_cast<std::size_t>(max) + 1);
        spans.back().end = by_words ? stripped(text, Ends::Right).end : text.size();
    }
    std::vector<Value> items;
    items.reserve(spans.size());
    for (const TextSpan& span : spans) items.push_back(call.runtime.part(call.self.text(), span));
    return call.runtime.list(std::move(items));
}

// startswith() and endswith(): the argument is a text or a tuple of texts; two more arguments select the characters
// [start, stop) of the text.
template <bool at_start>
Value begins_or_ends(Call& call) {
    Value self = call.self;
    if (call.has_some(1) || call.has_some(2)) {
        const auto bound = [&](std::size_t i) { return call.has(i) ? call[i] : Value::none(); };
        if (call.has_some(1) && call.integer(1, 0) > *length_of(call.runtime, self)) return Value(false);
        self = get_slice(call.runtime, self, bound(1), bound(2), Value::none());
    }
    const auto fits = [&](const Value& affix) {
        refuse_undefined(affix);
        if (!affix.is_text()) fail("{} first arg must be str or a tuple of str, not {}", call.name, type_name(affix));
        call.runtime.spend_bytes(affix.view().size());
        return at_start ? self.view().starts_with(affix.view()) : self.view().ends_with(affix.view());
    };
    return Value(call[0].is(Kind::Tuple) ? std::ranges::any_of(call[0].items(), fits) : fits(call[0]));
}

Value replaced(Call& call, const Text& from, const Text& to, std::int64_t count) {
    const std::string_view text = call.self.view();
    call.runtime.spend_bytes(text.size());
    TextBuilder out = call.runtime.builder();
    std::size_t done = 0;
    for (std::size_t at = 0; count != 0; --count) {
        // An empty text occurs before each character and at the end.
        const std::size_t found = find_text(text, from.bytes(), at);
        if (found == kNowhere) break;
        call.runtime.spend_bytes(to.bytes().size());
        out.append(call.self.text().marked, {done, found});
        out.append(to.marked);
        at = done = found + from.bytes().size();
        if (!from.bytes().empty()) continue;
        if (at == text.size()) break;
        at += first_char(text.substr(at)).bytes.size();
    }
    out.append(call.self.text().marked, {done, text.size()});
    return call.runtime.text(out);
}

Value replace(Call& call) {
    return replaced(call, call.text(0), call.text(1), call.integer(2, -1));
}

// The filter replace: its arguments may be any values; a count of none means all occurrences.
Value replace_spelt(Call& call) {
    const Value from = to_text(call.runtime, call[0]);
    const Value to = to_text(call.runtime, call[1]);
    call.self = to_text(call.runtime, call.self);
    return replaced(call, from.text(), to.text(), call.has_some(2) ? call.integer(2, -1) : -1);
}

Value join(Call& call) {
    TextBuilder out = call.runtime.builder();
    if (!call[0].is_iterable()) fail("can only join an iterable");
    bool is_first = true;
    for (const Value& item : to_items(call.runtime, call[0])) {
        refuse_undefined(item);
        if (!item.is_text()) fail("a list to be joined holds something that is not a text: {}", type_name(item));
        if (!std::exchange(is_first, false)) out.append(call.self.text().marked);
        call.runtime.spend_bytes(item.view().size() + call.self.view().size());
        out.append(item.text().marked);
    }
    return call.runtime.text(out);
}

const Value& argument_of(const Arguments& arguments, std::string_view field, std::size_t& next) {
    if (field.find_first_not_of("0123456789") == kNowhere) {
        const auto index = field.empty() ? next++ : static_cast<std::size_t>(*parse_int(field));
        if (index >= arguments.positional.size())
            fail("Replacement index {} out of range for positional args tuple", index);
        return arguments.positional[index];
    }
    for (const auto& [name, value] : arguments.named)
        if (name == field) return value;
    fail("'{}'", field);
}

// format(): supports "{}", "{0}" and "{name}". Format specs, conversions and attributes inside the braces are not
// supported.
Value format(Call& call) {
    const std::string_view text = call.self.view();
    const MarkedText& marked = call.self.text().marked;
    call.runtime.spend_bytes(text.size());
    TextBuilder out = call.runtime.builder();
    std::size_t next = 0;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t brace = std::min(text.find_first_of("{}", at), text.size());
        out.append(marked, {at, brace});
        if (brace == text.size()) break;
        if (brace + 1 < text.size() && text[brace + 1] == text[brace]) {
            out.append(marked, {brace, brace + 1});
            at = brace + 2;
            continue;
        }
        const std::size_t end = text.find('}', brace);
        if (text[brace] == '}' || end == kNowhere) fail("a single '{}' in a format string", text[brace]);
        const std::string_view field = text.substr(brace + 1, end - brace - 1);
        if (field.find_first_of(":!.[{") != kNowhere)
            fail("the format {} is not served in chat templates: format() takes {{}}, {{0}} and {{name}}",
                 repr_of(text.substr(brace, end + 1 - brace)));
        call.runtime.spend(static_cast<std::int64_t>(call.all.named.size()) + 1);
        write_str(call.runtime, out, argument_of(call.all, field, next));
        at = end + 1;
    }
    return call.runtime.text(out);
}

Value indent(Call& call) {
    refuse_undefined(call.self);
    if (!call.self.is_text()) fail("the input of indent must be str, not {}", type_name(call.self));
    TextBuilder margin = call.runtime.builder();
    if (call[0].is_text())
        margin.append(call[0].text().marked);
    else
        margin.repeat(call.integer(0, 4), {" ", {}});
    call.runtime.spend_chars(call.self.view().size());
    TextBuilder out = call.runtime.builder();
    if (call.truth(1)) out.append(margin.text());
    const std::string_view text = call.self.view();
    for (std::size_t begin = 0; begin <= text.size();) {  // the last line counts, even if it is empty
        std::size_t end = begin;
        while (end < text.size() && !is_line_break(first_char(text.substr(end)).code))
            end += first_char(text.substr(end)).bytes.size();
        call.runtime.spend_bytes(margin.text().bytes.size());
        if (begin > 0) {
            out.append('\n');
            if (begin < end || call.truth(2)) out.append(margin.text());
        }
        out.append(call.self.text().marked, {begin, end});
        if (end == text.size()) break;
        begin = end + (text.substr(end).starts_with("\r\n") ? 2 : first_char(text.substr(end)).bytes.size());
    }
    return call.runtime.text(out);
}

// The filter center(width): returns the text with spaces on both sides, `width` characters in total. If the number of
// spaces is odd, the left side gets one more if `width` is odd.
Value center(Call& call) {
    call.self = to_text(call.runtime, call.self);
    const std::int64_t width = call.integer(0, 80);
    call.runtime.spend_chars(call.self.view().size());
    const std::int64_t n_chars = count_chars(call.self.view());
    if (n_chars >= width) return call.self;
    const std::int64_t spaces = width - n_chars;
    const std::int64_t left = spaces / 2 + (spaces & width & 1);
    TextBuilder out = call.runtime.builder();
    out.repeat(left, {" ", {}});
    out.append(call.self.text().marked);
    out.repeat(spaces - left, {" ", {}});
    return call.runtime.text(out);
}

// The filter truncate: cuts at the last space before `length` characters, or there if killwords is true, and appends
// `end`. A text that is longer by at most `leeway` stays whole.
Value truncate(Call& call) {
    constexpr std::int64_t kLeeway = 5;
    const std::int64_t length = call.integer(0, 255);
    const Value end = call.has(2) ? call[2] : Value("...");
    if (!end.is_text()) fail("truncate() argument end must be str, not {}", type_name(end));
    const std::int64_t leeway = call.has_some(3) ? call.integer(3, 0) : kLeeway;
    const std::int64_t n_end = count_chars(end.view());
    if (length < n_end) fail("expected length >= {}, got {}", n_end, length);
    if (leeway < 0) fail("expected leeway >= 0, got {}", leeway);
    const std::optional<std::int64_t> size = length_of(call.runtime, call.self);
    if (!size) fail("object of type '{}' has no len()", type_name(call.self));
    if (*size - length <= leeway) return call.self;
    if (!call.self.is_text()) fail("truncate() of something that is not a text: {}", type_name(call.self));
    const std::string_view text = call.self.view();
    std::size_t stop = byte_offset(text, length - n_end);
    if (!call.truth(1)) stop = std::min(stop, text.substr(0, stop).rfind(' '));
    TextBuilder out = call.runtime.builder();
    out.append(call.self.text().marked, {0, stop});
    out.append(end.text().marked);
    return call.runtime.text(out);
}

Value string(Call& call) {
    return to_text(call.runtime, call.self);
}

// The filter safe: escapes nothing itself; text that is added to its result with + is escaped for HTML.
Value safe(Call& call) {
    return call.runtime.text(Text{to_text(call.runtime, call.self).text().marked, true});
}

constexpr std::array<Builtin, 13> kMethods = {{
    {"capitalize", capitalize},
    {"endswith", begins_or_ends<false>, {"_", "_", "_"}, 1},
    {"format", format, {}, kAnything},
    {"join", join, {"_"}, 1},
    {"lower", to_case<LetterCase::Lower>},
    {"lstrip", strip<Ends::Left>, {"_"}},
    {"replace", replace, {"_", "_", "count"}, 2},
    {"rstrip", strip<Ends::Right>, {"_"}},
    {"split", split, {"sep", "maxsplit"}},
    {"startswith", begins_or_ends<true>, {"_", "_", "_"}, 1},
    {"strip", strip<Ends::Both>, {"_"}},
    {"title", title},
    {"upper", to_case<LetterCase::Upper>},
}};

constexpr std::array<Builtin, 11> kFilters = {{
    {"capitalize", spelt<capitalize>},
    {"center", center, {"width"}},
    {"indent", indent, {"width", "first", "blank"}},
    {"lower", spelt<to_case<LetterCase::Lower>>},
    {"replace", replace_spelt, {"old", "new", "count"}, 2},
    {"safe", safe},
    {"string", string},
    {"title", title_words},
    {"trim", spelt<strip<Ends::Both>>, {"chars"}},
    {"truncate", truncate, {"length", "killwords", "end", "leeway"}},
    {"upper", spelt<to_case<LetterCase::Upper>>},
}};

}  // namespace

const Builtins kTextMethods = kMethods;
const Builtins kTextFilters = kFilters;

}  // namespace slipstream::jinja
