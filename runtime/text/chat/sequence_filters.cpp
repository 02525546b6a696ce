// Filters over sequences. Those that Jinja writes as generators give a Generator: a list that is read once.
#include <algorithm>

#include "runtime/text/chat/builtin.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/sorting.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/text_work.h"

namespace slipstream::jinja {

namespace {

constexpr std::size_t kMaxPathParts = 100;

std::vector<std::string_view> cut(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    while (true) {
        if (parts.size() == kMaxPathParts) fail("an attribute of more than {} parts", kMaxPathParts);
        const std::size_t end = text.find(separator);
        parts.push_back(text.substr(0, end));
        if (end == std::string_view::npos) return parts;
        text.remove_prefix(end + 1);
    }
}

// "function.name", "0.x" or a number: what an item is asked for; the item itself where no attribute is given.
class Path {
public:
    explicit Path(const Value& attribute) {
        if (!attribute.is_text()) {
            if (!attribute.is_missing() && !attribute.is_none()) parts_.push_back(attribute);
            return;
        }
        for (const std::string_view part : cut(attribute.view(), '.')) {
            const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
            parts_.push_back(is_number ? Value(*parse_int(part)) : Value(part));
        }
    }
    [[nodiscard]] Value of(Runtime& runtime, Value item, const Value& otherwise = {}) const {
        for (const Value& part : parts_) {
            runtime.spend(1);
            item = get_item(runtime, item, part);
            if (item.is_undefined() && !otherwise.is_missing() && !otherwise.is_none()) item = otherwise;
        }
        return item;
    }

private:
    std::vector<Value> parts_;
};

std::vector<Path> paths(const Value& attributes) {
    if (!attributes.is_text()) return {Path(attributes)};
    std::vector<Path> result;
    for (const std::string_view part : cut(attributes.view(), ',')) result.emplace_back(Value(part));
    return result;
}

// What a value is sorted by: texts without regard to case unless told otherwise.
Value comparable(Runtime& runtime, const Value& value, bool is_case_sensitive) {
    return is_case_sensitive || !value.is_text() ? value : map_text(runtime, value, LetterCase::Lower);
}

struct Keyed {
    Value key, item;
};

Value sorted(Runtime& runtime, std::vector<Keyed>& keyed, bool backwards) {
    merge_sort(keyed, [&](const Keyed& a, const Keyed& b) {
        return backwards ? less(runtime, b.key, a.key) : less(runtime, a.key, b.key);
    });
    std::vector<Value> items;
    items.reserve(keyed.size());
    for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
    return runtime.list(std::move(items));
}

Value sort(Runtime& runtime, const Value& input, const Given& given) {
    const std::vector<Path> by = paths(given.has(2) ? given[2] : Value::none());
    std::vector<Keyed> keyed;
    for (Value& item : to_items(runtime, input)) {
        std::vector<Value> key;
        for (const Path& path : by) key.push_back(comparable(runtime, path.of(runtime, item), given.truth(1, false)));
        keyed.push_back({runtime.list(std::move(key)), std::move(item)});
    }
    return sorted(runtime, keyed, given.truth(0, false));
}

Value dict_sort(Runtime& runtime, const Value& input, const Given& given) {
    const std::string_view by = given.has(1) ? given.text(1, "dictsort() by").bytes() : "key";
    if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
    refuse_undefined(input);
    if (!input.is(Kind::Dict)) fail("'{}' object has no attribute 'items'", type_name(input));
    std::vector<Keyed> keyed;
    for (const auto& [key, value] : input.dict().items())
        keyed.push_back({comparable(runtime, by == "key" ? key : value, given.truth(0, false)),
                         runtime.sequence(Kind::Tuple, {key, value})});
    return sorted(runtime, keyed, given.truth(2, false));
}

template <bool wants_most>
Value extreme(Runtime& runtime, const Value& input, const Given& given) {
    const Path path(given[1]);
    Keyed best;
    Value item;
    for (Iterator items(input); items.next(runtime, item);) {
        Value key = comparable(runtime, path.of(runtime, item), given.truth(0, false));
        if (best.key.is_missing() || (wants_most ? less(runtime, best.key, key) : less(runtime, key, best.key)))
            best = {std::move(key), item};
    }
    return best.key.is_missing() ? runtime.undefined({.hint = "No aggregated item, sequence was empty."}) : best.item;
}

Value unique(Runtime& runtime, const Value& input, const Given& given) {
    const Path path(given[1]);
    Dict seen;
    std::vector<Value> items;
    for (Value& item : to_items(runtime, input)) {
        Value key = comparable(runtime, path.of(runtime, item), given.truth(0, false));
        if (!is_hashable(key)) fail("unhashable type: '{}'", type_name(key));
        if (seen.find(key) != nullptr) continue;
        seen.set(std::move(key), Value::none());
        items.push_back(std::move(item));
    }
    return runtime.sequence(Kind::Generator, std::move(items));
}

Value join(Runtime& runtime, const Value& input, const Given& given) {
    const Path path(given[1]);
    const Value separator = given.has(0) ? to_text(runtime, given[0]) : Value("");
    TextBuilder out = runtime.builder();
    Value item;
    bool is_first = true;
    for (Iterator items(input); items.next(runtime, item);) {
        if (!std::exchange(is_first, false)) write_str(runtime, out, separator);
        write_str(runtime, out, path.of(runtime, item));
    }
    return runtime.text(out);
}

Value length(Runtime& runtime, const Value& input, const Given& /*given*/) {
    if (input.is_text()) runtime.spend_chars(input.view().size());
    const auto n = length_of(input);
    if (!n) fail("object of type '{}' has no len()", type_name(input));
    return Value(*n);
}

Value first(Runtime& runtime, const Value& input, const Given& /*given*/) {
    Value item;
    return Iterator(input).next(runtime, item) ? item
                                               : runtime.undefined({.hint = "No first item, sequence was empty."});
}

Value last(Runtime& runtime, const Value& input, const Given& /*given*/) {
    if (input.is(Kind::Generator)) fail("'generator' object is not reversible");
    if (input.is_text() && !input.view().empty())
        return runtime.part(input.text(),
                            {input.view().size() - last_char(input.view()).bytes.size(), input.view().size()});
    if (input.is_sequence() && !input.items().empty()) return input.items().back();
    if (input.is(Kind::Dict) && input.dict().size() > 0) return input.dict().items().back().first;
    if (!is_iterable(input)) fail("'{}' object is not reversible", type_name(input));
    return runtime.undefined({.hint = "No last item, sequence was empty."});
}

Value list(Runtime& runtime, const Value& input, const Given& /*given*/) {
    return runtime.list(to_items(runtime, input));
}

Value reverse(Runtime& runtime, const Value& input, const Given& /*given*/) {
    if (input.is_text()) return get_slice(runtime, input, Value::none(), Value::none(), Value(-1));
    std::vector<Value> items = to_items(runtime, input);
    std::reverse(items.begin(), items.end());
    return runtime.sequence(Kind::Generator, std::move(items));
}

Value sum(Runtime& runtime, const Value& input, const Given& given) {
    const Path path(given[0]);
    Value total = given.has(1) ? given[1] : Value(0);
    Value item;
    for (Iterator items(input); items.next(runtime, item);)
        total = arithmetic(runtime, Arithmetic::Add, total, path.of(runtime, item));
    return total;
}

Value items(Runtime& runtime, const Value& input, const Given& /*given*/) {
    std::vector<Value> pairs;
    if (!input.is_undefined()) {
        if (!input.is(Kind::Dict)) fail("Can only get item pairs from a mapping.");
        for (const auto& [key, value] : input.dict().items())
            pairs.push_back(runtime.sequence(Kind::Tuple, {key, value}));
    }
    return runtime.sequence(Kind::Generator, std::move(pairs));
}

const Value& argument(const Arguments& arguments, std::size_t i, std::string_view function) {
    if (i >= arguments.positional.size()) fail("{}() misses its argument {}", function, i + 1);
    return arguments.positional[i];
}

const Builtin& named(const Builtin* found, std::string_view what, const Value& name) {
    if (found == nullptr) fail("No {} named {}.", what, shown(name));
    return *found;
}

// Arguments from the `first` positional one on, and those by name.
Arguments rest_of(const Arguments& arguments, std::size_t first) {
    Arguments rest;
    for (std::size_t i = first; i < arguments.positional.size(); ++i)
        rest.positional.push_back(arguments.positional[i]);
    rest.named = arguments.named;
    return rest;
}

Value map(Runtime& runtime, const Value& input, const Given& given) {
    if (!is_true(input)) return runtime.sequence(Kind::Generator, {});  // none, too: Jinja does not look then
    Value attribute;
    Value otherwise;
    for (const auto& [name, value] : given.all->named) {
        if (name == "attribute") attribute = value;
        if (name == "default") otherwise = value;
    }
    std::vector<Value> results;
    if (!attribute.is_missing()) {
        const Path path(attribute);
        for (Value& each : to_items(runtime, input)) results.push_back(path.of(runtime, std::move(each), otherwise));
        return runtime.sequence(Kind::Generator, std::move(results));
    }
    const Value& name = argument(*given.all, 0, "map");
    const Builtin& filter = named(name.is_text() ? find_filter(name.view()) : nullptr, "filter", name);
    const Arguments rest = rest_of(*given.all, 1);
    for (const Value& each : to_items(runtime, input)) results.push_back(call_builtin(runtime, filter, each, rest));
    return runtime.sequence(Kind::Generator, std::move(results));
}

// select, reject and those by attribute: the items of which a test says `wanted`; without a test, what is true.
template <bool wanted, bool by_attribute>
Value chosen(Runtime& runtime, const Value& input, const Given& given) {
    if (!is_true(input)) return runtime.sequence(Kind::Generator, {});  // none, too: Jinja does not look then
    const Path path(by_attribute ? argument(*given.all, 0, "selectattr") : Value());
    const std::size_t at = by_attribute ? 1 : 0;
    const bool has_test = given.all->positional.size() > at;
    const Builtin* test = nullptr;
    if (has_test) {
        const Value& name = given.all->positional[at];
        test = &named(name.is_text() ? find_test(name.view()) : nullptr, "test", name);
    }
    const Arguments rest = rest_of(*given.all, at + 1);
    std::vector<Value> results;
    for (Value& each : to_items(runtime, input)) {
        const Value value = path.of(runtime, each);
        if (is_true(has_test ? call_builtin(runtime, *test, value, rest) : value) == wanted)
            results.push_back(std::move(each));
    }
    return runtime.sequence(Kind::Generator, std::move(results));
}

constexpr auto kAnything = Builtin::Takes::Anything;
constexpr std::array<Builtin, 19> kFilters = {{
    {"count", length},
    {"dictsort", dict_sort, {"case_sensitive", "by", "reverse"}},
    {"first", first},
    {"items", items},
    {"join", join, {"d", "attribute"}},
    {"last", last},
    {"length", length},
    {"list", list},
    {"map", map, {}, 0, kAnything},
    {"max", extreme<true>, {"case_sensitive", "attribute"}},
    {"min", extreme<false>, {"case_sensitive", "attribute"}},
    {"reject", chosen<false, false>, {}, 0, kAnything},
    {"rejectattr", chosen<false, true>, {}, 0, kAnything},
    {"reverse", reverse},
    {"select", chosen<true, false>, {}, 0, kAnything},
    {"selectattr", chosen<true, true>, {}, 0, kAnything},
    {"sort", sort, {"reverse", "case_sensitive", "attribute"}},
    {"sum", sum, {"attribute", "start"}},
    {"unique", unique, {"case_sensitive", "attribute"}},
}};

}  // namespace

std::span<const Builtin> sequence_filters() {
    return kFilters;
}

}  // namespace slipstream::jinja
