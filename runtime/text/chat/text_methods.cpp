// Methods of str that make one text from one text, and those that ask what kind of characters it is made of.
#include <algorithm>
#include <array>

#include "runtime/text/chat/arguments.h"
#include "runtime/text/chat/markup.h"
#include "runtime/text/chat/methods.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_format.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

using Convert = std::string (*)(std::string_view);
using Strip = std::string_view (*)(std::string_view);
using StripOf = std::string_view (*)(std::string_view, std::string_view);
using CharTest = bool (*)(char32_t);

std::string_view strip_both(std::string_view text, std::string_view chars) {
    return strip_right(strip_left(text, chars), chars);
}

template <Convert convert>
Value converted(Runtime& runtime, const Value& self, Arguments& arguments) {
    static_cast<void>(bind("str method", arguments, {}, 0));
    runtime.spend_for(self);
    return runtime.text(convert(self.view()), self.text());
}

template <Strip spaces, StripOf of_chars>
Value stripped(Runtime& runtime, const Value& self, Arguments& arguments) {
    const auto given = bind("strip", arguments, {"chars"}, 0);
    runtime.spend_for(self);
    if (!is_given_and_some(given[0])) return runtime.text(std::string(spaces(self.view())), self.text());
    const std::string_view chars = text_of(given[0], "strip arg");
    // Each character is looked for among `chars`.
    runtime.spend(self.weight() * given[0].weight());
    return runtime.text(std::string(of_chars(self.view(), chars)), self.text());
}

// True where the text is not empty and all its characters are of the class.
template <CharTest test>
Value all_are(Runtime& runtime, const Value& self, Arguments& arguments) {
    static_cast<void>(bind("str method", arguments, {}, 0));
    runtime.spend_for(self);
    bool all = !self.view().empty();
    for (std::string_view rest = self.view(); all && !rest.empty();) all = test(take_char(rest).code);
    return Value(all);
}

// An empty text has nothing that cannot be printed.
Value is_all_printable(Runtime& runtime, const Value& self, Arguments& arguments) {
    const bool is_empty = self.view().empty();
    return Value(is_empty || all_are<is_printable>(runtime, self, arguments).truth());
}

bool is_alphanumeric(char32_t code) {
    return is_alpha(code) || is_numeric(code);
}

// At least one cased character, and none of the other case.
template <CharTest wanted, CharTest other>
Value cased_as(Runtime& runtime, const Value& self, Arguments& arguments) {
    static_cast<void>(bind("str method", arguments, {}, 0));
    runtime.spend_for(self);
    bool any = false;
    for (std::string_view rest = self.view(); !rest.empty();) {
        const char32_t code = take_char(rest).code;
        if (other(code) || is_title(code)) return Value(false);
        any = any || wanted(code);
    }
    return Value(any);
}

Value is_titled(Runtime& runtime, const Value& self, Arguments& arguments) {
    static_cast<void>(bind("istitle", arguments, {}, 0));
    runtime.spend_for(self);
    bool any = false;
    bool in_word = false;
    for (std::string_view rest = self.view(); !rest.empty();) {
        const char32_t code = take_char(rest).code;
        const bool upper = is_upper(code) || is_title(code);
        if (upper == in_word && (upper || is_lower(code))) return Value(false);
        in_word = upper || is_lower(code);
        any = any || in_word;
    }
    return Value(any);
}

Value is_ascii(Runtime& runtime, const Value& self, Arguments& arguments) {
    static_cast<void>(bind("isascii", arguments, {}, 0));
    runtime.spend_for(self);
    return Value(std::all_of(self.view().begin(), self.view().end(),
                             [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

Value is_identifier(Runtime& runtime, const Value& self, Arguments& arguments) {
    static_cast<void>(bind("isidentifier", arguments, {}, 0));
    runtime.spend_for(self);
    std::string_view rest = self.view();
    bool good = !rest.empty() && is_identifier_start(take_char(rest).code);
    while (good && !rest.empty()) good = is_identifier_part(take_char(rest).code);
    return Value(good);
}

enum class Side : std::uint8_t { Left, Right, Both };  // where the padding goes

template <Side side>
Value padded(Runtime& runtime, const Value& self, Arguments& arguments) {
    constexpr std::string_view kName = side == Side::Left ? "rjust" : side == Side::Right ? "ljust" : "center";
    const auto given = bind(kName, arguments, {"", ""}, 1);
    const std::int64_t width = int_of(given[0], "width");
    runtime.spend_for(self);
    const std::string_view fill = is_given(given[1]) ? text_of(given[1], "fill character") : " ";
    if (count_chars(fill) != 1) fail("The fill character must be exactly one character long");
    const std::int64_t missing = std::max<std::int64_t>(width - self.text().n_chars, 0);
    // Both: the odd one goes left where the width is odd (CPython, Objects/stringlib/transmogrify.h).
    const std::int64_t left = side == Side::Left    ? missing
                              : side == Side::Right ? 0
                                                    : missing / 2 + (missing & width & 1);
    TextBuilder out = runtime.builder();
    out.repeat(left, fill);
    out.append(self.view());
    out.repeat(missing - left, fill);
    return runtime.text(out.take(), self.text());
}

Value zero_filled(Runtime& runtime, const Value& self, Arguments& arguments) {
    const auto given = bind("zfill", arguments, {""}, 1);
    runtime.spend_for(self);
    const std::string_view text = self.view();
    const std::size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
    TextBuilder out = runtime.builder();
    out.append(text.substr(0, sign));
    out.repeat(int_of(given[0], "width") - self.text().n_chars, "0");
    out.append(text.substr(sign));
    return runtime.text(out.take(), self.text());
}

Value expanded_tabs(Runtime& runtime, const Value& self, Arguments& arguments) {
    const std::int64_t size = int_or(bind("expandtabs", arguments, {"tabsize"}, 0)[0], 8, "tabsize");
    runtime.spend_for(self);
    TextBuilder out = runtime.builder();
    std::int64_t column = 0;
    for (std::string_view rest = self.view(); !rest.empty();) {
        const Char c = take_char(rest);
        if (c.code == '\t') {
            const std::int64_t n = size > 0 ? size - column % size : 0;
            out.repeat(n, " ");
            column += n;
        } else {
            out.append(c.bytes);
            column = c.code == '\n' || c.code == '\r' ? 0 : column + 1;
        }
    }
    return runtime.text(out.take(), self.text());
}

Value without_prefix(Runtime& runtime, const Value& self, Arguments& arguments) {
    const auto given = bind("removeprefix", arguments, {""}, 1);
    runtime.spend_for(self);
    std::string_view text = self.view();
    if (const auto prefix = text_of(given[0], "prefix"); text.starts_with(prefix)) text.remove_prefix(prefix.size());
    return runtime.text(std::string(text), self.text());
}

Value without_suffix(Runtime& runtime, const Value& self, Arguments& arguments) {
    const auto given = bind("removesuffix", arguments, {""}, 1);
    runtime.spend_for(self);
    std::string_view text = self.view();
    if (const auto suffix = text_of(given[0], "suffix"); text.ends_with(suffix)) text.remove_suffix(suffix.size());
    return runtime.text(std::string(text), self.text());
}

Value replaced(Runtime& runtime, const Value& self, Arguments& arguments) {
    const auto given = bind("replace", arguments, {"", "", ""}, 2);
    const std::string_view old = text_of(given[0], "replace() argument 1");
    static_cast<void>(text_of(given[1], "replace() argument 2"));
    return replace_text(runtime, self, old, given[1], int_or(given[2], -1, "replace() argument 3"));
}

Value formatted(Runtime& runtime, const Value& self, Arguments& arguments) {
    return format_braces(runtime, self, arguments);
}

Value formatted_map(Runtime& runtime, const Value& self, Arguments& arguments) {
    const auto given = bind("format_map", arguments, {""}, 1);
    if (!given[0].is(Kind::Dict)) fail("format_map() of a '{}' object is not served", type_name(given[0]));
    Arguments named;
    for (const auto& [key, value] : given[0].dict().items())
        if (key.is_text()) named.named.emplace_back(key.view(), value);
    return format_braces(runtime, self, named);
}

constexpr std::array<Method, 36> kMethods = {{
    {"capitalize", converted<capitalize>},
    {"casefold", nullptr},
    {"center", padded<Side::Both>},
    {"encode", nullptr},
    {"expandtabs", expanded_tabs},
    {"format", formatted},
    {"format_map", formatted_map},
    {"isalnum", all_are<is_alphanumeric>},
    {"isalpha", all_are<is_alpha>},
    {"isascii", is_ascii},
    {"isdecimal", all_are<is_decimal>},
    {"isdigit", all_are<is_digit>},
    {"isidentifier", is_identifier},
    {"islower", cased_as<is_lower, is_upper>},
    {"isnumeric", all_are<is_numeric>},
    {"isprintable", is_all_printable},
    {"isspace", all_are<is_space>},
    {"istitle", is_titled},
    {"isupper", cased_as<is_upper, is_lower>},
    {"ljust", padded<Side::Right>},
    {"lower", converted<to_lower>},
    {"lstrip", stripped<strip_left, strip_left>},
    {"maketrans", nullptr},
    {"removeprefix", without_prefix},
    {"removesuffix", without_suffix},
    {"replace", replaced},
    {"rjust", padded<Side::Left>},
    {"rstrip", stripped<strip_right, strip_right>},
    {"strip", stripped<strip, strip_both>},
    {"striptags", nullptr},
    {"swapcase", converted<swap_case>},
    {"title", converted<to_title>},
    {"translate", nullptr},
    {"unescape", nullptr},
    {"upper", converted<to_upper>},
    {"zfill", zero_filled},
}};

// Bound to its name instead of a text.
Value not_served(Runtime& /*runtime*/, const Value& name, Arguments& /*arguments*/) {
    fail("the method {}() of str is not served here", name.view());
}

}  // namespace

std::optional<Value> text_method(Runtime& runtime, const Value& text, std::string_view name) {
    const auto found = std::lower_bound(kMethods.begin(), kMethods.end(), name,
                                        [](const Method& method, std::string_view key) { return method.name < key; });
    const Method* method = found != kMethods.end() && found->name == name ? &*found : text_search_method(name);
    if (method == nullptr) return std::nullopt;
    const bool of_markup = name == "striptags" || name == "unescape";
    if (of_markup && !text.text().is_markup) return std::nullopt;
    if (method->body == nullptr) return Value(runtime.make<Function>(method->name, not_served, Value(method->name)));
    return Value(runtime.make<Function>(method->name, method->body, text));
}

Value replace_text(Runtime& runtime, const Value& text, std::string_view old, const Value& replacement,
                   std::int64_t count) {
    runtime.spend(text.weight() + replacement.weight());
    const Value escaped = text.text().is_markup ? escape(runtime, replacement) : replacement;
    const std::string_view with = escaped.view();
    const std::string_view from = text.view();
    TextBuilder out = runtime.builder();
    std::size_t done = 0;  // bytes of `from`
    for (std::int64_t n = 0; count < 0 || n < count; ++n) {
        runtime.spend(1);
        if (old.empty()) {
            // Before every character, and at the end.
            out.append(with);
            if (done == from.size()) return runtime.text(out.take(), text.text());
            const Char c = first_char(from.substr(done));
            out.append(c.bytes);
            done += c.bytes.size();
            continue;
        }
        const std::size_t found = find_text(from, old, done);
        if (found == std::string_view::npos) break;
        out.append(from.substr(done, found - done));
        out.append(with);
        done = found + old.size();
    }
    out.append(from.substr(done));
    return runtime.text(out.take(), text.text());
}

}  // namespace slipstream::jinja
