#include "runtime/text/chat/value_tests.h"

#include <algorithm>
#include <array>

#include "runtime/text/chat/arguments.h"
#include "runtime/text/chat/filters.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

void none_given(const Arguments& arguments) {
    static_cast<void>(bind("test", arguments, {}, 0));
}

template <Kind kind>
bool is_kind(Runtime& /*runtime*/, const Value& value, const Arguments& arguments) {
    none_given(arguments);
    return value.is(kind);
}

bool is_defined(Runtime& /*runtime*/, const Value& value, const Arguments& arguments) {
    none_given(arguments);
    return !value.is_undefined();
}

template <bool wanted>
bool is_truth(Runtime& /*runtime*/, const Value& value, const Arguments& arguments) {
    none_given(arguments);
    return value.is(Kind::Bool) && value.truth() == wanted;
}

bool is_integer(Runtime& /*runtime*/, const Value& value, const Arguments& arguments) {
    none_given(arguments);
    return value.is(Kind::Int) || LongInteger::of(value) != nullptr;
}

bool is_number(Runtime& /*runtime*/, const Value& value, const Arguments& arguments) {
    none_given(arguments);
    return value.is_number() || LongInteger::of(value) != nullptr;
}

// What has a length and elements.
bool is_sequence(Runtime& /*runtime*/, const Value& value, const Arguments& arguments) {
    none_given(arguments);
    if (value.is(Kind::Object)) return dynamic_cast<const Range*>(&value.object()) != nullptr;
    return value.is_text() || value.is_sequence() || value.is(Kind::Dict) || value.is_undefined();
}

bool is_iterable_test(Runtime& /*runtime*/, const Value& value, const Arguments& arguments) {
    none_given(arguments);
    return is_iterable(value);
}

bool is_callable(Runtime& /*runtime*/, const Value& value, const Arguments& arguments) {
    none_given(arguments);
    // Undefined values have __call__, if only to complain.
    return value.is_undefined() || (value.is(Kind::Object) && value.object().is_callable());
}

bool is_escaped(Runtime& /*runtime*/, const Value& value, const Arguments& arguments) {
    none_given(arguments);
    return value.is_text() && value.text().is_markup;
}

template <bool upper>
bool is_case(Runtime& runtime, const Value& value, const Arguments& arguments) {
    none_given(arguments);
    bool any = false;
    const Value text = to_text(runtime, value);
    runtime.spend_for(text);
    for (std::string_view rest = text.view(); !rest.empty();) {
        const char32_t code = take_char(rest).code;
        if (is_title(code) || (upper ? is_lower(code) : is_upper(code))) return false;
        any = any || (upper ? is_upper(code) : is_lower(code));
    }
    return any;
}

template <int rest>
bool is_parity(Runtime& runtime, const Value& value, const Arguments& arguments) {
    none_given(arguments);
    return compare(runtime, Comparison::Equal, arithmetic(runtime, Arithmetic::Modulo, value, Value(2)), Value(rest));
}

bool is_divisible(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const auto given = bind("divisibleby", arguments, {"num"}, 1);
    return compare(runtime, Comparison::Equal, arithmetic(runtime, Arithmetic::Modulo, value, given[0]), Value(0));
}

template <Comparison comparison>
bool compares(Runtime& runtime, const Value& value, const Arguments& arguments) {
    return compare(runtime, comparison, value, bind("comparison", arguments, {""}, 1)[0]);
}

bool is_in(Runtime& runtime, const Value& value, const Arguments& arguments) {
    return contains(runtime, bind("in", arguments, {"seq"}, 1)[0], value);
}

// Python's `is`: containers and objects by identity; of the rest it is a matter of luck, but for none and bools.
bool is_same(Runtime& runtime, const Value& value, const Arguments& arguments) {
    const Value other = bind("sameas", arguments, {"other"}, 1)[0];
    if (value.kind() != other.kind()) return false;
    runtime.spend_for(value);
    return value.identity() == nullptr ? equal(value, other) : value.identity() == other.identity();
}

void refuse_unhashable(const Value& value) {
    if (!is_hashable(value)) fail("unhashable type: '{}'", type_name(value));
}

bool names_filter(Runtime& /*runtime*/, const Value& value, const Arguments& arguments) {
    none_given(arguments);
    refuse_unhashable(value);
    return value.is_text() && find_filter(value.view()) != nullptr;
}

bool names_test(Runtime& /*runtime*/, const Value& value, const Arguments& arguments) {
    none_given(arguments);
    refuse_unhashable(value);
    return value.is_text() && find_test(value.view()) != nullptr;
}

// Sorted by name.
constexpr std::array<ValueTest, 39> kTests = {{
    {"!=", compares<Comparison::NotEqual>},
    {"<", compares<Comparison::Less>},
    {"<=", compares<Comparison::LessOrEqual>},
    {"==", compares<Comparison::Equal>},
    {">", compares<Comparison::Greater>},
    {">=", compares<Comparison::GreaterOrEqual>},
    {"boolean", is_kind<Kind::Bool>},
    {"callable", is_callable},
    {"defined", is_defined},
    {"divisibleby", is_divisible},
    {"eq", compares<Comparison::Equal>},
    {"equalto", compares<Comparison::Equal>},
    {"escaped", is_escaped},
    {"even", is_parity<0>},
    {"false", is_truth<false>},
    {"filter", names_filter},
    {"float", is_kind<Kind::Float>},
    {"ge", compares<Comparison::GreaterOrEqual>},
    {"greaterthan", compares<Comparison::Greater>},
    {"gt", compares<Comparison::Greater>},
    {"in", is_in},
    {"integer", is_integer},
    {"iterable", is_iterable_test},
    {"le", compares<Comparison::LessOrEqual>},
    {"lessthan", compares<Comparison::Less>},
    {"lower", is_case<false>},
    {"lt", compares<Comparison::Less>},
    {"mapping", is_kind<Kind::Dict>},
    {"ne", compares<Comparison::NotEqual>},
    {"none", is_kind<Kind::None>},
    {"number", is_number},
    {"odd", is_parity<1>},
    {"sameas", is_same},
    {"sequence", is_sequence},
    {"string", is_kind<Kind::Text>},
    {"test", names_test},
    {"true", is_truth<true>},
    {"undefined", is_kind<Kind::Undefined>},
    {"upper", is_case<true>},
}};

}  // namespace

const ValueTest* find_test(std::string_view name) {
    const auto found = std::lower_bound(kTests.begin(), kTests.end(), name,
                                        [](const ValueTest& test, std::string_view key) { return test.name < key; });
    return found != kTests.end() && found->name == name ? &*found : nullptr;
}

}  // namespace slipstream::jinja
