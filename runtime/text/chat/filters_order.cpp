// Filters that put items in order. Texts compare without regard to case unless told otherwise; sorting is stable, also
// backwards.
#include "runtime/text/chat/arguments.h"
#include "runtime/text/chat/attribute_path.h"
#include "runtime/text/chat/filter_bodies.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/sorting.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja::filters {

namespace {

enum class Order : std::uint8_t { Ascending, Descending };

struct Keyed {
    Value key;
    Value item;
};

void sort_keyed(Runtime& runtime, std::vector<Keyed>& keyed, Order order) {
    merge_sort(keyed, [&runtime, order](const Keyed& a, const Keyed& b) {
        return order == Order::Ascending ? less(runtime, a.key, b.key) : less(runtime, b.key, a.key);
    });
}

Value items_of(Runtime& runtime, std::vector<Keyed>& keyed) {
    std::vector<Value> items;
    items.reserve(keyed.size());
    for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
    return runtime.list(std::move(items));
}

LetterCase letter_case(const Value& case_sensitive) {
    return truth_or(case_sensitive, false) ? LetterCase::Kept : LetterCase::Ignored;
}

Value extreme(Runtime& runtime, std::string_view name, const Value& input, const Arguments& arguments, Order order) {
    const auto given = bind(name, arguments, {"case_sensitive", "attribute"}, 0);
    const AttributePath path(given[1]);
    const auto iterator = iterate(runtime, input);
    std::optional<Keyed> best;
    while (auto item = iterator->next(runtime)) {
        Keyed next{comparable(runtime, path.of(runtime, *item), letter_case(given[0])), *item};
        const bool better = !best || (order == Order::Ascending ? less(runtime, next.key, best->key)
                                                                : less(runtime, best->key, next.key));
        if (better) best = std::move(next);
    }
    return best ? best->item : Value::undefined({.hint = "No aggregated item, sequence was empty."});
}

}  // namespace

Value sort(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto given = bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}, 0);
    const std::vector<AttributePath> paths = attribute_paths(is_given(given[2]) ? given[2] : Value::none());
    std::vector<Keyed> keyed;
    for (Value& item : to_items(runtime, input)) {
        std::vector<Value> key;
        for (const AttributePath& path : paths)
            key.push_back(comparable(runtime, path.of(runtime, item), letter_case(given[1])));
        // Lists compare part by part; and parts that are equal need no order.
        keyed.push_back({runtime.list(std::move(key)), std::move(item)});
    }
    sort_keyed(runtime, keyed, flag_or(given[0], false, "sort() reverse") ? Order::Descending : Order::Ascending);
    return items_of(runtime, keyed);
}

Value dict_sort(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto given = bind("dictsort", arguments, {"case_sensitive", "by", "reverse"}, 0);
    const std::string_view by = is_given(given[1]) ? text_of(given[1], "dictsort() by") : "key";
    if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
    refuse_undefined(input);
    if (!input.is(Kind::Dict)) fail("'{}' object has no attribute 'items'", type_name(input));
    std::vector<Keyed> keyed;
    for (const auto& [key, value] : input.dict().items()) {
        Value sorted_by = comparable(runtime, by == "key" ? key : value, letter_case(given[0]));
        keyed.push_back({std::move(sorted_by), runtime.tuple({key, value})});
    }
    sort_keyed(runtime, keyed, flag_or(given[2], false, "dictsort() reverse") ? Order::Descending : Order::Ascending);
    return items_of(runtime, keyed);
}

Value group_by(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto given = bind("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
    const AttributePath path(given[0]);
    std::vector<Keyed> keyed;
    for (Value& item : to_items(runtime, input)) {
        Value key = comparable(runtime, path.of(runtime, item, given[1]), letter_case(given[2]));
        keyed.push_back({std::move(key), std::move(item)});
    }
    sort_keyed(runtime, keyed, Order::Ascending);
    std::vector<Value> groups;
    for (std::size_t begin = 0; begin < keyed.size();) {
        std::vector<Value> members;
        const std::size_t group = begin;
        while (begin < keyed.size() && compare(runtime, Comparison::Equal, keyed[group].key, keyed[begin].key))
            members.push_back(keyed[begin++].item);
        // What equals not even itself is a group of its own.
        if (members.empty()) members.push_back(keyed[begin++].item);
        // The key as the first member spells it.
        Value grouper = path.of(runtime, members.front(), given[1]);
        groups.push_back(Value::group(std::move(grouper), runtime.list(std::move(members))));
    }
    return runtime.list(std::move(groups));
}

Value min(Runtime& runtime, const Value& input, const Arguments& arguments) {
    return extreme(runtime, "min", input, arguments, Order::Ascending);
}

Value max(Runtime& runtime, const Value& input, const Arguments& arguments) {
    return extreme(runtime, "max", input, arguments, Order::Descending);
}

}  // namespace slipstream::jinja::filters
