// Methods of str that look into text or take it apart: split, find, count, partition, join and their kind. Python
// counts in characters, the text lies in bytes: positions are translated at the border.
#include <algorithm>
#include <array>

#include "runtime/text/chat/arguments.h"
#include "runtime/text/chat/markup.h"
#include "runtime/text/chat/methods.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

constexpr std::size_t kNowhere = std::string_view::npos;

Value piece(Runtime& runtime, const Value& self, std::string_view text) {
    return runtime.text(std::string(text), self.text());
}

// Where `part` stands last, ending at or before byte `end`. Compares from the back; the caller has paid for the
// product.
std::size_t find_last(std::string_view text, std::string_view part, std::size_t end = kNowhere) {
    if (part.size() > std::min(end, text.size())) return kNowhere;
    return text.rfind(part, std::min(end, text.size()) - part.size());
}

// rfind() may compare all of `part` at every place.
void pay_for_backwards(Runtime& runtime, const Value& self, std::string_view part) {
    runtime.spend(self.weight() * static_cast<std::int64_t>(1 + part.size() / 256));
}

std::vector<Value> split_spaces(Runtime& runtime, const Value& self, std::int64_t max_splits) {
    std::vector<Value> items;
    std::string_view rest = strip_left(self.view());
    while (!rest.empty()) {
        if (static_cast<std::int64_t>(items.size()) == max_splits) {
            items.push_back(piece(runtime, self, strip_right(rest)));
            break;
        }
        std::string_view after = rest;
        while (!after.empty() && !is_space(first_char(after).code)) take_char(after);
        items.push_back(piece(runtime, self, rest.substr(0, rest.size() - after.size())));
        rest = strip_left(after);
    }
    return items;
}

std::vector<Value> split_spaces_from_right(Runtime& runtime, const Value& self, std::int64_t max_splits) {
    std::vector<Value> items;
    std::string_view rest = strip_right(self.view());
    while (!rest.empty()) {
        if (static_cast<std::int64_t>(items.size()) == max_splits) {
            items.push_back(piece(runtime, self, strip_left(rest)));
            break;
        }
        std::string_view before = rest;
        while (!before.empty() && !is_space(last_char(before).code))
            before.remove_suffix(last_char(before).bytes.size());
        items.push_back(piece(runtime, self, rest.substr(before.size())));
        rest = strip_right(before);
    }
    std::reverse(items.begin(), items.end());
    return items;
}

Value split(Runtime& runtime, const Value& self, Arguments& arguments) {
    const auto given = bind("split", arguments, {"sep", "maxsplit"}, 0);
    std::int64_t max_splits = int_or(given[1], -1, "maxsplit");
    runtime.spend_for(self);
    if (!is_given_and_some(given[0])) return runtime.list(split_spaces(runtime, self, max_splits));
    const std::string_view separator = text_of(given[0], "split() separator");
    if (separator.empty()) fail("empty separator");
    std::vector<Value> items;
    std::string_view rest = self.view();
    for (; max_splits != 0; --max_splits) {
        const std::size_t found = find_text(rest, separator);
        if (found == kNowhere) break;
        runtime.spend(1);
        items.push_back(piece(runtime, self, rest.substr(0, found)));
        rest.remove_prefix(found + separator.size());
    }
    items.push_back(piece(runtime, self, rest));
    return runtime.list(std::move(items));
}

Value split_from_right(Runtime& runtime, const Value& self, Arguments& arguments) {
    const auto given = bind("rsplit", arguments, {"sep", "maxsplit"}, 0);
    std::int64_t max_splits = int_or(given[1], -1, "maxsplit");
    runtime.spend_for(self);
    if (!is_given_and_some(given[0])) return runtime.list(split_spaces_from_right(runtime, self, max_splits));
    const std::string_view separator = text_of(given[0], "rsplit() separator");
    if (separator.empty()) fail("empty separator");
    pay_for_backwards(runtime, self, separator);
    std::vector<Value> items;
    std::string_view rest = self.view();
    for (; max_splits != 0; --max_splits) {
        const std::size_t found = find_last(rest, separator);
        if (found == kNowhere) break;
        runtime.spend(1);
        items.push_back(piece(runtime, self, rest.substr(found + separator.size())));
        rest = rest.substr(0, found);
    }
    items.push_back(piece(runtime, self, rest));
    std::reverse(items.begin(), items.end());
    return runtime.list(std::move(items));
}

Value split_lines(Runtime& runtime, const Value& self, Arguments& arguments) {
    const bool keep_ends = flag_or(bind("splitlines", arguments, {"keepends"}, 0)[0], false, "keepends");
    runtime.spend_for(self);
    std::vector<Value> items;
    std::string_view rest = self.view();
    while (!rest.empty()) {
        std::string_view after = rest;
        std::size_t line = 0;
        while (!after.empty() && !is_line_break(first_char(after).code)) line += take_char(after).bytes.size();
        if (!after.empty() && take_char(after).code == '\r' && after.starts_with('\n')) take_char(after);
        const std::size_t whole = rest.size() - after.size();
        runtime.spend(1);
        items.push_back(piece(runtime, self, rest.substr(0, keep_ends ? whole : line)));
        rest = after;
    }
    return runtime.list(std::move(items));
}

Value partition(Runtime& runtime, const Value& self, Arguments& arguments) {
    const auto given = bind("partition", arguments, {""}, 1);
    const std::string_view separator = text_of(given[0], "separator");
    if (separator.empty()) fail("empty separator");
    runtime.spend_for(self);
    const std::string_view text = self.view();
    const std::size_t found = find_text(text, separator);
    if (found == kNowhere) return runtime.tuple({self, piece(runtime, self, ""), piece(runtime, self, "")});
    return runtime.tuple({piece(runtime, self, text.substr(0, found)), piece(runtime, self, separator),
                          piece(runtime, self, text.substr(found + separator.size()))});
}

Value partition_from_right(Runtime& runtime, const Value& self, Arguments& arguments) {
    const auto given = bind("rpartition", arguments, {""}, 1);
    const std::string_view separator = text_of(given[0], "separator");
    if (separator.empty()) fail("empty separator");
    pay_for_backwards(runtime, self, separator);
    const std::string_view text = self.view();
    const std::size_t found = find_last(text, separator);
    if (found == kNowhere) return runtime.tuple({piece(runtime, self, ""), piece(runtime, self, ""), self});
    return runtime.tuple({piece(runtime, self, text.substr(0, found)), piece(runtime, self, separator),
                          piece(runtime, self, text.substr(found + separator.size()))});
}

Value join(Runtime& runtime, const Value& self, Arguments& arguments) {
    const auto given = bind("join", arguments, {""}, 1);
    if (!is_iterable(given[0])) fail("can only join an iterable");
    TextBuilder out = runtime.builder();
    const auto iterator = iterate(runtime, given[0]);
    for (std::int64_t i = 0; const auto item = iterator->next(runtime); ++i) {
        if (i > 0) out.append(self.view());
        if (self.text().is_markup) {
            out.append(escape(runtime, *item).view());
        } else {
            if (!item->is_text()) fail("sequence item {}: expected str instance, {} found", i, type_name(*item));
            runtime.spend_for(*item);
            out.append(item->view());
        }
    }
    return runtime.text(out.take(), self.text());
}

// The part of the text that start and end (given[1], given[2]) leave, in characters from the front or the back.
struct Window {
    std::string_view text;
    std::int64_t first;  // character where it begins
    bool empty_range;    // start lies behind end: not even the empty text is found
};

Window window_of(const Value& self, const std::vector<Value>& given) {
    const std::int64_t length = self.text().n_chars;
    const auto place = [&](const Value& value, std::int64_t otherwise) {
        if (!is_given_and_some(value)) return otherwise;
        const std::int64_t index = int_of(value, "slice index");
        return index < 0 ? std::max<std::int64_t>(index + length, 0) : index;
    };
    const std::int64_t start = place(given[1], 0);
    const std::int64_t end = std::min(place(given[2], length), length);
    if (start > end) return {{}, start, true};
    const std::string_view bytes = self.view();
    const auto offset = [&](std::int64_t index) {
        return self.text().is_ascii() ? static_cast<std::size_t>(index) : byte_offset(bytes, index);
    };
    const std::size_t begin = offset(start);
    return {bytes.substr(begin, offset(end) - begin), start, false};
}

enum class From : std::uint8_t { Left, Right };
enum class Absent : std::uint8_t { MinusOne, Error };

template <From from, Absent absent>
Value find(Runtime& runtime, const Value& self, Arguments& arguments) {
    constexpr std::string_view kName = absent == Absent::Error ? from == From::Left ? "index" : "rindex"
                                       : from == From::Left    ? "find"
                                                               : "rfind";
    const auto given = bind(kName, arguments, {"", "", ""}, 1);
    const std::string_view part = text_of(given[0], "what is looked for");
    pay_for_backwards(runtime, self, part);
    const Window window = window_of(self, given);
    std::size_t found = kNowhere;
    if (!window.empty_range) found = from == From::Left ? find_text(window.text, part) : find_last(window.text, part);
    if (found != kNowhere) return Value(window.first + count_chars(window.text.substr(0, found)));
    if (absent == Absent::Error) fail("substring not found");
    return Value(-1);
}

Value count(Runtime& runtime, const Value& self, Arguments& arguments) {
    const auto given = bind("count", arguments, {"", "", ""}, 1);
    const std::string_view part = text_of(given[0], "count() argument");
    runtime.spend_for(self);
    const Window window = window_of(self, given);
    if (window.empty_range) return Value(0);
    if (part.empty()) return Value(count_chars(window.text) + 1);
    std::int64_t n = 0;
    for (std::size_t at = 0; (at = find_text(window.text, part, at)) != kNowhere; at += part.size()) {
        runtime.spend(1);
        ++n;
    }
    return Value(n);
}

enum class End : std::uint8_t { Start, Finish };

template <End end>
Value has_affix(Runtime& runtime, const Value& self, Arguments& arguments) {
    const auto given = bind(end == End::Start ? "startswith" : "endswith", arguments, {"", "", ""}, 1);
    runtime.spend(self.weight());
    const Window window = window_of(self, given);
    const auto matches = [&](const Value& affix) {
        const std::string_view part = text_of(affix, "each affix");
        return !window.empty_range && (end == End::Start ? window.text.starts_with(part) : window.text.ends_with(part));
    };
    if (!given[0].is(Kind::Tuple)) return Value(matches(given[0]));
    runtime.spend_for(given[0]);
    const auto& affixes = given[0].items();
    return Value(std::any_of(affixes.begin(), affixes.end(), matches));
}

constexpr std::array<Method, 13> kMethods = {{
    {"count", count},
    {"endswith", has_affix<End::Finish>},
    {"find", find<From::Left, Absent::MinusOne>},
    {"index", find<From::Left, Absent::Error>},
    {"join", join},
    {"partition", partition},
    {"rfind", find<From::Right, Absent::MinusOne>},
    {"rindex", find<From::Right, Absent::Error>},
    {"rpartition", partition_from_right},
    {"rsplit", split_from_right},
    {"split", split},
    {"splitlines", split_lines},
    {"startswith", has_affix<End::Start>},
}};

}  // namespace

const Method* text_search_method(std::string_view name) {
    const auto found = std::lower_bound(kMethods.begin(), kMethods.end(), name,
                                        [](const Method& method, std::string_view key) { return method.name < key; });
    return found != kMethods.end() && found->name == name ? &*found : nullptr;
}

}  // namespace slipstream::jinja
