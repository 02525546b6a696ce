// Methods of str. Python counts in characters, the text lies in bytes: positions are translated at the border. What
// they make keeps the marks of what it is made from.
#include <algorithm>

#include "runtime/text/chat/builtin.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/text_work.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

constexpr std::size_t kNowhere = std::string_view::npos;

std::string_view inside(const Text& text, TextSpan span) {
    return text.bytes().substr(0, span.end).substr(span.begin);
}

template <Ends ends>
Value strip(Runtime& runtime, const Value& self, const Given& given) {
    return strip_text(runtime, self, ends, given);
}

template <LetterCase to>
Value mapped(Runtime& runtime, const Value& self, const Given& /*given*/) {
    return map_text(runtime, self, to);
}

Value capitalize(Runtime& runtime, const Value& self, const Given& /*given*/) {
    return capitalize_text(runtime, self);
}

Value title(Runtime& runtime, const Value& self, const Given& /*given*/) {
    runtime.spend_chars(self.view().size());
    TextBuilder out = runtime.builder();
    bool in_word = false;
    for (std::size_t at = 0; at < self.view().size();) {
        const Char c = first_char(self.view().substr(at));
        const TextSpan span{at, at + c.bytes.size()};
        append_mapped(out, self.text().marked, span, in_word ? LetterCase::Lower : LetterCase::Title);
        in_word = is_lower(c.code) || is_upper(c.code);
        at = span.end;
    }
    return runtime.text(out);
}

// Words between white space.
std::vector<TextSpan> words(Runtime& runtime, const Text& text) {
    std::vector<TextSpan> spans;
    TextSpan rest = stripped(text.bytes(), Ends::Both);
    while (rest.begin < rest.end) {
        std::size_t end = rest.begin;
        while (end < rest.end && !is_space(first_char(inside(text, {end, rest.end})).code))
            end += first_char(inside(text, {end, rest.end})).bytes.size();
        runtime.check_items(2 * spans.size());
        spans.push_back({rest.begin, end});
        rest.begin = end + stripped(inside(text, {end, rest.end}), Ends::Left).begin;
    }
    return spans;
}

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

enum class From : std::uint8_t { Left, Right };

// split() and rsplit(): of the first or last `max` places, all others stay in one piece.
template <From from>
Value split(Runtime& runtime, const Value& self, const Given& given) {
    const Text& text = self.text();
    runtime.spend_chars(text.bytes().size());
    const bool by_words = !given.has_some(0);
    if (!by_words && given.text(0, "split() separator").bytes().empty()) fail("empty separator");
    std::vector<TextSpan> spans = by_words ? words(runtime, text) : pieces(runtime, text.bytes(), given[0].view());
    const std::int64_t max = given.integer(1, -1, "maxsplit");
    if (max >= 0 && static_cast<std::size_t>(max) + 1 < spans.size()) {
        const std::size_t kept = static_cast<std::size_t>(max);
        if (from == From::Left) {
            spans[kept].end = by_words ? stripped(text.bytes(), Ends::Right).end : text.bytes().size();
            spans.resize(kept + 1);
        } else {
            const std::size_t joined = spans.size() - kept - 1;
            spans[joined].begin = by_words ? spans[0].begin : 0;
            spans.erase(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(joined));
        }
    }
    std::vector<Value> items;
    items.reserve(spans.size());
    for (const TextSpan& span : spans) items.push_back(runtime.part(text, span));
    return runtime.list(std::move(items));
}

Value split_lines(Runtime& runtime, const Value& self, const Given& given) {
    runtime.spend_chars(self.view().size());
    std::vector<Value> items;
    for (const auto& [line, end] : lines_of(runtime, self.view()))
        items.push_back(runtime.part(self.text(), {line.begin, given.truth(0, false) ? end : line.end}));
    return runtime.list(std::move(items));
}

// startswith() and endswith(): a text or several, from a place on and up to another.
template <bool at_start>
Value begins_or_ends(Runtime& runtime, const Value& self, const Given& given) {
    const std::string_view all = self.view();
    const std::int64_t n = self.text().n_chars();
    const auto place = [&](std::size_t i, std::int64_t otherwise) {
        if (!given.has_some(i)) return otherwise;
        const std::int64_t at = given.integer(i, 0, "startswith() place");
        return std::clamp<std::int64_t>(at < 0 ? at + n : at, 0, at > n && i == 1 ? n + 1 : n);
    };
    const std::int64_t begin = place(1, 0);
    const std::int64_t end = place(2, n);
    if (begin > n || end < begin) return Value(false);
    if (given.has_some(1) || given.has_some(2)) runtime.spend_chars(all.size());
    const std::string_view text = given.has_some(1) || given.has_some(2)
                                      ? all.substr(0, byte_offset(all, end)).substr(byte_offset(all, begin))
                                      : all;
    const auto fits = [&](const Value& part) {
        if (!part.is_text()) {
            refuse_undefined(part);
            fail("{} first arg must be str or a tuple of str, not {}", at_start ? "startswith" : "endswith",
                 type_name(part));
        }
        runtime.spend_bytes(part.view().size());
        return at_start ? text.starts_with(part.view()) : text.ends_with(part.view());
    };
    if (!given[0].is(Kind::Tuple)) return Value(fits(given[0]));
    return Value(std::any_of(given[0].items().begin(), given[0].items().end(), fits));
}

Value replace(Runtime& runtime, const Value& self, const Given& given) {
    return replace_text(runtime, self, given.text(0, "replace() argument 1"), given.text(1, "replace() argument 2"),
                        given.integer(2, -1, "replace() count"));
}

Value join(Runtime& runtime, const Value& self, const Given& given) {
    TextBuilder out = runtime.builder();
    Value item;
    std::size_t n = 0;
    if (!is_iterable(given[0])) fail("can only join an iterable");
    for (Iterator items(given[0]); items.next(runtime, item); ++n) {
        refuse_undefined(item);
        if (!item.is_text()) fail("sequence item {}: expected str instance, {} found", n, type_name(item));
        if (n > 0) out.append(self.text().marked);
        runtime.spend_bytes(item.view().size() + self.view().size());
        out.append(item.text().marked);
    }
    return runtime.text(out);
}

template <From from>
Value find(Runtime& runtime, const Value& self, const Given& given) {
    const std::string_view text = self.view();
    const std::string_view part = given.text(0, "find() argument 1").bytes();
    runtime.spend_chars(text.size());
    const std::int64_t first = given.integer(1, 0, "find() start");
    std::size_t begin = byte_offset(text, first < 0 ? std::max<std::int64_t>(first + self.text().n_chars(), 0) : first);
    if (first > self.text().n_chars()) return Value(-1);
    std::size_t found = find_text(text, part, begin);
    // The last one is found from the front: rfind() may take the product of the lengths.
    for (std::size_t next = found; from == From::Right && next != kNowhere; next = find_text(text, part, next + 1)) {
        runtime.spend_bytes(part.size());
        found = next;
    }
    return Value(found == kNowhere ? -1 : count_chars(text.substr(0, found)));
}

Value index(Runtime& runtime, const Value& self, const Given& given) {
    Value found = find<From::Left>(runtime, self, given);
    if (found.integer() < 0) fail("substring not found");
    return found;
}

Value count(Runtime& runtime, const Value& self, const Given& given) {
    const Text& part = given.text(0, "count() argument 1");
    runtime.spend_chars(self.view().size());
    if (part.bytes().empty()) return Value(self.text().n_chars() + 1);
    return Value(static_cast<std::int64_t>(pieces(runtime, self.view(), part.bytes()).size()) - 1);
}

Value partition(Runtime& runtime, const Value& self, const Given& given) {
    const Text& separator = given.text(0, "separator");
    if (separator.bytes().empty()) fail("empty separator");
    runtime.spend_bytes(self.view().size());
    const std::size_t found = find_text(self.view(), separator.bytes());
    if (found == kNowhere) return runtime.sequence(Kind::Tuple, {self, Value(""), Value("")});
    return runtime.sequence(Kind::Tuple,
                            {runtime.part(self.text(), {0, found}), given[0],
                             runtime.part(self.text(), {found + separator.bytes().size(), self.view().size()})});
}

template <bool at_start>
Value remove_affix(Runtime& runtime, const Value& self, const Given& given) {
    const std::string_view affix = given.text(0, "affix").bytes();
    if (affix.empty() || !(at_start ? self.view().starts_with(affix) : self.view().ends_with(affix))) return self;
    return runtime.part(self.text(), at_start ? TextSpan{affix.size(), self.view().size()}
                                              : TextSpan{0, self.view().size() - affix.size()});
}

template <bool (*belongs)(char32_t)>
Value is_made_of(Runtime& runtime, const Value& self, const Given& /*given*/) {
    runtime.spend_chars(self.view().size());
    std::string_view rest = self.view();
    while (!rest.empty())
        if (!belongs(take_char(rest).code)) return Value(false);
    return Value(!self.view().empty());
}

bool is_alpha_or_digit(char32_t code) {
    return is_alpha(code) || is_digit(code);
}

constexpr std::array<Builtin, 26> kMethods = {{
    {"capitalize", capitalize},
    {"count", count, {"_"}, 1},
    {"endswith", begins_or_ends<false>, {"_", "_", "_"}, 1},
    {"find", find<From::Left>, {"_", "_"}, 1},
    {"format", format_text, {}, 0, Builtin::Takes::Anything},
    {"index", index, {"_", "_"}, 1},
    {"isalnum", is_made_of<is_alpha_or_digit>},
    {"isalpha", is_made_of<is_alpha>},
    {"isdigit", is_made_of<is_digit>},
    {"isspace", is_made_of<is_space>},
    {"join", join, {"_"}, 1},
    {"lower", mapped<LetterCase::Lower>},
    {"lstrip", strip<Ends::Left>, {"_"}},
    {"partition", partition, {"_"}, 1},
    {"removeprefix", remove_affix<true>, {"_"}, 1},
    {"removesuffix", remove_affix<false>, {"_"}, 1},
    {"replace", replace, {"_", "_", "count"}, 2},
    {"rfind", find<From::Right>, {"_", "_"}, 1},
    {"rsplit", split<From::Right>, {"sep", "maxsplit"}},
    {"rstrip", strip<Ends::Right>, {"_"}},
    {"split", split<From::Left>, {"sep", "maxsplit"}},
    {"splitlines", split_lines, {"keepends"}},
    {"startswith", begins_or_ends<true>, {"_", "_", "_"}, 1},
    {"strip", strip<Ends::Both>, {"_"}},
    {"title", title},
    {"upper", mapped<LetterCase::Upper>},
}};

}  // namespace

std::span<const Builtin> text_methods() {
    return kMethods;
}

}  // namespace slipstream::jinja
