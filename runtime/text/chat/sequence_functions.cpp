// Filters over sequences, and the methods of dicts and lists. Filters that are generators in Jinja return a Generator:
// a list that can be read once.
#include <algorithm>
#include <array>
#include <iterator>

#include "runtime/text/chat/builtin.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/spelling.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

constexpr std::size_t kMaxPathParts = 100;

Value generator(Call& call, std::vector<Value> items) {
    return call.runtime.sequence(Kind::Generator, std::move(items));
}

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

// The attribute that a filter takes of each item: "function.name", "0.x" or a number. Without an attribute, the item
// itself.
class Path {
public:
    Path(Runtime& runtime, const Value& attribute) {
        if (attribute.is_text()) runtime.spend_chars(attribute.view().size());
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

// Returns the value by which `value` is sorted: a text in lower case unless `is_case_sensitive`, any other value
// itself.
Value comparable(Runtime& runtime, const Value& value, bool is_case_sensitive) {
    static const Builtin* const lower = find_filter("lower");
    return is_case_sensitive || !value.is_text() ? value : call_builtin(runtime, *lower, value, {});
}

struct Keyed {
    Value key, item;
};

Value sorted(Call& call, std::vector<Keyed>& keyed, bool backwards) {
    merge_sort(keyed, [&](const Keyed& a, const Keyed& b) {
        return backwards ? less(call.runtime, b.key, a.key) : less(call.runtime, a.key, b.key);
    });
    std::vector<Value> items;
    items.reserve(keyed.size());
    for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
    return call.runtime.list(std::move(items));
}

Value sort(Call& call) {
    std::vector<Path> by;
    if (call[2].is_text()) call.runtime.spend_chars(call[2].view().size());
    if (call[2].is_text())
        for (const std::string_view attribute : cut(call[2].view(), ','))
            by.emplace_back(call.runtime, Value(attribute));
    else
        by.emplace_back(call.runtime, call[2]);
    std::vector<Value> items = to_items(call.runtime, call.self);
    // Charges for the items, their keys, and the copy that merging needs.
    const Cell held = call.runtime.scratch<Keyed[3]>(items.size());
    std::vector<Keyed> keyed;
    keyed.reserve(items.size());
    for (Value& item : items) {
        std::vector<Value> key;
        for (const Path& path : by) key.push_back(comparable(call.runtime, path.of(call.runtime, item), call.truth(1)));
        keyed.push_back({call.runtime.list(std::move(key)), std::move(item)});
    }
    return sorted(call, keyed, call.integer(0, 0) != 0);
}

Value dict_sort(Call& call) {
    const std::string_view by = call.has(1) ? call.text(1).bytes() : "key";
    if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
    refuse_undefined(call.self);
    if (!call.self.is(Kind::Dict)) fail("'{}' object has no attribute 'items'", type_name(call.self));
    const Cell held = call.runtime.scratch<Keyed[3]>(call.self.dict().size());
    std::vector<Keyed> keyed;
    for (const auto& [key, value] : call.self.dict().items())
        keyed.push_back({comparable(call.runtime, by == "key" ? key : value, call.truth(0)),
                         call.runtime.sequence(Kind::Tuple, {key, value})});
    return sorted(call, keyed, call.integer(2, 0) != 0);
}

template <bool wants_most>
Value extreme(Call& call) {
    const Path path(call.runtime, call[1]);
    Keyed best;
    for (Value& item : to_items(call.runtime, call.self)) {
        Value key = comparable(call.runtime, path.of(call.runtime, item), call.truth(0));
        if (best.key.is_missing() ||
            (wants_most ? less(call.runtime, best.key, key) : less(call.runtime, key, best.key)))
            best = {std::move(key), std::move(item)};
    }
    return best.key.is_missing() ? call.runtime.undefined("No aggregated item, sequence was empty.") : best.item;
}

Value group_by(Call& call) {
    const Path path(call.runtime, call[0]);
    const auto key_of = [&](const Value& item) {
        return comparable(call.runtime, path.of(call.runtime, item, call[1]), call.truth(2));
    };
    std::vector<Value> items = to_items(call.runtime, call.self);
    const Cell held = call.runtime.scratch<Keyed[3]>(items.size());
    std::vector<Keyed> keyed;
    keyed.reserve(items.size());
    for (Value& item : items) {
        Value key = key_of(item);
        keyed.push_back({std::move(key), std::move(item)});
    }
    merge_sort(keyed, [&](const Keyed& a, const Keyed& b) { return less(call.runtime, a.key, b.key); });
    std::vector<Value> groups;
    for (std::size_t begin = 0, end = 0; begin < keyed.size(); begin = end) {
        std::vector<Value> group;
        for (; end < keyed.size() && (end == begin || equal(call.runtime, keyed[begin].key, keyed[end].key)); ++end)
            group.push_back(keyed[end].item);
        // The key as the first item has it, not in lower case.
        Value key = path.of(call.runtime, group.front(), call[1]);
        groups.push_back(call.runtime.sequence(Kind::Tuple, {std::move(key), call.runtime.list(std::move(group))}));
        groups.back().sequence().is_group = true;
    }
    return call.runtime.list(std::move(groups));
}

Value sum(Call& call) {
    const Path path(call.runtime, call[0]);
    Value total = call.has(1) ? call[1] : Value(0);
    if (total.is_text()) fail("sum() can't sum strings [use ''.join(seq) instead]");
    for (Value& item : to_items(call.runtime, call.self))
        total = arithmetic(call.runtime, Arithmetic::Add, total, path.of(call.runtime, std::move(item)));
    return total;
}

// Returns `rows` as a generator of lists.
Value rows_of(Call& call, std::vector<std::vector<Value>> rows) {
    std::vector<Value> lists;
    lists.reserve(rows.size());
    for (std::vector<Value>& row : rows) lists.push_back(call.runtime.list(std::move(row)));
    return generator(call, std::move(lists));
}

// The filter batch(linecount, fill_with): returns a generator of lists of `linecount` items each. The last list is
// filled up with `fill_with` if that is given.
Value batch(Call& call) {
    // Jinja compares the count with the lengths, whatever its type.
    const auto is_count = [&](std::size_t n) { return equal(call.runtime, Value(n), call[0]); };
    std::vector<Value> items = to_items(call.runtime, call.self);
    const Cell held = call.runtime.scratch<std::vector<Value>[3]>(items.size());
    std::vector<std::vector<Value>> rows;
    for (Value& item : items) {
        // A count of 0 gives an empty list before the first item, and all items in one.
        if (rows.empty() || is_count(rows.back().size())) {
            if (rows.empty() && is_count(0)) rows.emplace_back();
            rows.emplace_back();
        }
        rows.back().push_back(std::move(item));
    }
    if (!rows.empty() && call.has_some(1) && less(call.runtime, Value(rows.back().size()), call[0])) {
        const std::int64_t wanted = call.integer(0, 0);
        call.runtime.check_items(static_cast<std::size_t>(wanted));
        call.runtime.spend(wanted);
        rows.back().resize(static_cast<std::size_t>(wanted), call[1]);
    }
    return rows_of(call, std::move(rows));
}

// The filter slice(slices, fill_with): returns a generator of `slices` lists of about the same length, the longer ones
// first. The shorter lists are filled up with `fill_with` if that is given.
Value slice(Call& call) {
    const std::int64_t n_rows = call.integer(0, 0);
    std::vector<Value> items = to_items(call.runtime, call.self);
    if (n_rows == 0) fail("integer division or modulo by zero");
    if (n_rows < 0) return generator(call, {});
    call.runtime.check_items(static_cast<std::size_t>(n_rows));
    call.runtime.spend(n_rows);
    const Cell held = call.runtime.scratch<std::vector<Value>[3]>(static_cast<std::size_t>(n_rows));
    const std::int64_t length = std::ssize(items) / n_rows;
    const std::int64_t n_longer = std::ssize(items) % n_rows;
    std::vector<std::vector<Value>> rows(static_cast<std::size_t>(n_rows));
    auto next = items.begin();
    for (std::int64_t i = 0; i < n_rows; ++i) {
        const auto end = next + length + (i < n_longer ? 1 : 0);
        rows[i].assign(std::move_iterator(next), std::move_iterator(end));
        if (call.has_some(1) && i >= n_longer) rows[i].push_back(call[1]);
        next = end;
    }
    return rows_of(call, std::move(rows));
}

Value unique(Call& call) {
    const Path path(call.runtime, call[1]);
    std::vector<Value> items = to_items(call.runtime, call.self);
    const Cell held = call.runtime.scratch<Dict::Item[3]>(items.size());
    Dict seen;
    std::erase_if(items, [&](const Value& item) {
        const std::size_t n_seen = seen.size();
        seen.set(comparable(call.runtime, path.of(call.runtime, item), call.truth(0)), Value::none(), &call.runtime);
        return seen.size() == n_seen;
    });
    return generator(call, std::move(items));
}

Value join(Call& call) {
    const Path path(call.runtime, call[1]);
    const Value separator = call.has(0) ? to_text(call.runtime, call[0]) : Value("");
    TextBuilder out = call.runtime.builder();
    bool is_first = true;
    for (Value& item : to_items(call.runtime, call.self)) {
        if (!std::exchange(is_first, false)) write_str(call.runtime, out, separator);
        write_str(call.runtime, out, path.of(call.runtime, std::move(item)));
    }
    return call.runtime.text(out);
}

Value length(Call& call) {
    const auto n = length_of(call.runtime, call.self);
    if (!n) fail("object of type '{}' has no len()", type_name(call.self));
    return Value(*n);
}

Value first(Call& call) {
    if (call.self.is_text() && !call.self.view().empty()) return get_item(call.runtime, call.self, Value(0));
    const std::vector<Value> items = to_items(call.runtime, call.self);
    return items.empty() ? call.runtime.undefined("No first item, sequence was empty.") : items.front();
}

Value last(Call& call) {
    if (call.self.is(Kind::Generator) || !call.self.is_iterable())
        fail("'{}' object is not reversible", type_name(call.self));
    if (call.self.is_text() && !call.self.view().empty()) return get_item(call.runtime, call.self, Value(-1));
    const std::vector<Value> items = to_items(call.runtime, call.self);
    return items.empty() ? call.runtime.undefined("No last item, sequence was empty.") : items.back();
}

Value reverse(Call& call) {
    if (call.self.is_text()) return get_slice(call.runtime, call.self, Value::none(), Value::none(), Value(-1));
    std::vector<Value> items = to_items(call.runtime, call.self);
    std::ranges::reverse(items);
    return generator(call, std::move(items));
}

Value list(Call& call) {
    return call.runtime.list(to_items(call.runtime, call.self));
}

const Builtin& named(const Builtin* (*find)(std::string_view), std::string_view what, const Value& name) {
    const Builtin* const found = name.is_text() ? find(name.view()) : nullptr;
    if (found == nullptr) fail("No {} named {}.", what, shown(name));
    return *found;
}

// Returns the positional arguments from index `first` on, and all keyword arguments.
Arguments rest_of(const Arguments& arguments, std::size_t first) {
    const auto& all = arguments.positional;
    return {{all.begin() + static_cast<std::ptrdiff_t>(std::min(first, all.size())), all.end()}, arguments.named};
}

Value map(Call& call) {
    // Nothing to apply it to, also for none: Jinja does not check arguments then.
    if (!is_true(call.self)) return generator(call, {});
    Value attribute, otherwise;
    for (const auto& [name, value] : call.all.named) {
        if (name == "attribute") attribute = value;
        if (name == "default") otherwise = value;
    }
    if (attribute.is_missing() && call.all.positional.empty()) fail("map requires a filter argument");
    std::vector<Value> items = to_items(call.runtime, call.self);
    const Cell held = call.runtime.scratch(items.size());
    if (!attribute.is_missing()) {
        const Path path(call.runtime, attribute);
        for (Value& each : items) each = path.of(call.runtime, std::move(each), otherwise);
    } else {
        const Builtin& filter = named(find_filter, "filter", call.all.positional[0]);
        const Arguments rest = rest_of(call.all, 1);
        for (Value& each : items) each = call_builtin(call.runtime, filter, each, rest);
    }
    return generator(call, std::move(items));
}

// select, reject, selectattr and rejectattr: returns the items for which the test gives `wanted`; without a test, the
// truth of the item (or attribute) counts.
template <bool wanted, bool by_attribute>
Value chosen(Call& call) {
    // Nothing to apply it to, also for none: Jinja does not check arguments then.
    if (!is_true(call.self)) return generator(call, {});
    const std::vector<Value>& given = call.all.positional;
    const std::size_t at = by_attribute ? 1 : 0;
    if (given.size() < at) fail("Missing parameter for attribute name");
    const Path path(call.runtime, by_attribute ? given[0] : Value());
    const Builtin* test = given.size() > at ? &named(find_test, "test", given[at]) : nullptr;
    const Arguments rest = rest_of(call.all, at + 1);
    std::vector<Value> items = to_items(call.runtime, call.self);
    const Cell held = call.runtime.scratch(items.size());
    std::erase_if(items, [&](const Value& each) {
        Value value = path.of(call.runtime, each);
        if (test != nullptr) value = call_builtin(call.runtime, *test, value, rest);
        return is_true(value) != wanted;
    });
    return generator(call, std::move(items));
}

template <Kind kind>
std::vector<Value> items_of(Call& call) {
    std::vector<Value> items;
    call.runtime.check_items(call.self.dict().size());
    items.reserve(call.self.dict().size());
    for (const auto& [key, value] : call.self.dict().items())
        items.push_back(kind == Kind::Keys     ? key
                        : kind == Kind::Values ? value
                                               : call.runtime.sequence(Kind::Tuple, {key, value}));
    return items;
}

template <Kind kind>
Value view(Call& call) {
    return call.runtime.sequence(kind, items_of<kind>(call));
}

Value items(Call& call) {
    if (call.self.is_undefined()) return generator(call, {});
    if (!call.self.is(Kind::Dict)) fail("Can only get item pairs from a mapping.");
    return generator(call, items_of<Kind::Items>(call));
}

Value get(Call& call) {
    const Value* value = call.self.dict().find(call[0], &call.runtime);
    return value != nullptr ? *value : call.has(1) ? call[1] : Value::none();
}

// A method that would change a list or dict. As in Jinja's sandbox, it is found and fails when it is called.
Value refuse_change(Call& call) {
    fail("access to attribute {} of '{}' object is unsafe.", repr_of(call.name), type_name(call.self));
}
constexpr Builtin change(std::string_view name) {
    return {name, refuse_change, {}, kAnything};
}

constexpr std::array<Builtin, 8> kOfDict = {{
    change("clear"),
    {"get", get, {"_", "_"}, 1},
    {"items", view<Kind::Items>},
    {"keys", view<Kind::Keys>},
    change("pop"),
    change("setdefault"),
    change("update"),
    {"values", view<Kind::Values>},
}};
constexpr std::array<Builtin, 8> kOfList = {{change("append"), change("clear"), change("extend"), change("insert"),
                                             change("pop"), change("remove"), change("reverse"), change("sort")}};

constexpr std::array<Builtin, 22> kFilters = {{
    {"batch", batch, {"linecount", "fill_with"}, 1},
    {"count", length},
    {"dictsort", dict_sort, {"case_sensitive", "by", "reverse"}},
    {"first", first},
    {"groupby", group_by, {"attribute", "default", "case_sensitive"}, 1},
    {"items", items},
    {"join", join, {"d", "attribute"}},
    {"last", last},
    {"length", length},
    {"list", list},
    {"map", map, {}, kAnything},
    {"max", extreme<true>, {"case_sensitive", "attribute"}},
    {"min", extreme<false>, {"case_sensitive", "attribute"}},
    {"reject", chosen<false, false>, {}, kAnything},
    {"rejectattr", chosen<false, true>, {}, kAnything},
    {"reverse", reverse},
    {"select", chosen<true, false>, {}, kAnything},
    {"selectattr", chosen<true, true>, {}, kAnything},
    {"slice", slice, {"slices", "fill_with"}, 1},
    {"sort", sort, {"reverse", "case_sensitive", "attribute"}},
    {"sum", sum, {"attribute", "start"}},
    {"unique", unique, {"case_sensitive", "attribute"}},
}};

}  // namespace

const Builtins kSequenceFilters = kFilters;
const Builtins kDictMethods = kOfDict;
const Builtins kListMethods = kOfList;

}  // namespace slipstream::jinja
