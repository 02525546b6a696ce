// Tests: what stands behind "is".
#include <algorithm>

#include "runtime/text/chat/builtin.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

template <bool (*holds)(const Value&)>
Value plain(Runtime& /*runtime*/, const Value& value, const Given& /*given*/) {
    return Value(holds(value));
}

template <Kind kind>
bool is_kind(const Value& value) {
    return value.is(kind);
}
bool is_defined(const Value& value) {
    return !value.is_undefined();
}
template <bool wanted>
bool is_bool(const Value& value) {
    return value.is(Kind::Bool) && value.truth() == wanted;
}
bool is_integer(const Value& value) {
    return value.is(Kind::Int) || value.is(Kind::LongInt);
}
bool is_number(const Value& value) {
    return value.is_number() || value.is(Kind::LongInt);
}
// What has a length and elements.
bool is_sequence(const Value& value) {
    return value.is_text() || value.is(Kind::List) || value.is(Kind::Tuple) || value.is(Kind::Range) ||
           value.is(Kind::Dict) || value.is_undefined();
}
bool is_callable(const Value& value) {
    return value.is_undefined() || (value.is(Kind::Object) && value.object().is_callable());
}

template <bool wants_upper>
Value is_case(Runtime& runtime, const Value& value, const Given& /*given*/) {
    const Value text = to_text(runtime, value);
    runtime.spend_chars(text.view().size());
    bool any = false;
    for (std::string_view rest = text.view(); !rest.empty();) {
        const char32_t code = take_char(rest).code;
        if (wants_upper ? is_lower(code) : is_upper(code)) return Value(false);
        any = any || is_lower(code) || is_upper(code);
    }
    return Value(any);
}

template <int rest>
Value is_parity(Runtime& runtime, const Value& value, const Given& /*given*/) {
    return Value(equal(runtime, arithmetic(runtime, Arithmetic::Modulo, value, Value(2)), Value(rest)));
}

Value is_divisible(Runtime& runtime, const Value& value, const Given& given) {
    return Value(equal(runtime, arithmetic(runtime, Arithmetic::Modulo, value, given[0]), Value(0)));
}

template <Comparison comparison>
Value compares(Runtime& runtime, const Value& value, const Given& given) {
    return Value(compare(runtime, comparison, value, given[0]));
}

// Python's `is`: containers and objects by identity; of the rest it is a matter of luck, but for none and bools.
Value is_same(Runtime& runtime, const Value& value, const Given& given) {
    if (value.kind() != given[0].kind()) return Value(false);
    return Value(value.cell() == nullptr ? equal(runtime, value, given[0]) : value.cell() == given[0].cell());
}

constexpr std::array<Builtin, 36> kTests = {{
    {"!=", compares<Comparison::NotEqual>, {"_"}, 1},
    {"<", compares<Comparison::Less>, {"_"}, 1},
    {"<=", compares<Comparison::LessOrEqual>, {"_"}, 1},
    {"==", compares<Comparison::Equal>, {"_"}, 1},
    {">", compares<Comparison::Greater>, {"_"}, 1},
    {">=", compares<Comparison::GreaterOrEqual>, {"_"}, 1},
    {"boolean", plain<is_kind<Kind::Bool>>},
    {"callable", plain<is_callable>},
    {"defined", plain<is_defined>},
    {"divisibleby", is_divisible, {"num"}, 1},
    {"eq", compares<Comparison::Equal>, {"_"}, 1},
    {"equalto", compares<Comparison::Equal>, {"_"}, 1},
    {"even", is_parity<0>},
    {"false", plain<is_bool<false>>},
    {"float", plain<is_kind<Kind::Float>>},
    {"ge", compares<Comparison::GreaterOrEqual>, {"_"}, 1},
    {"greaterthan", compares<Comparison::Greater>, {"_"}, 1},
    {"gt", compares<Comparison::Greater>, {"_"}, 1},
    {"in", compares<Comparison::In>, {"seq"}, 1},
    {"integer", plain<is_integer>},
    {"iterable", plain<is_iterable>},
    {"le", compares<Comparison::LessOrEqual>, {"_"}, 1},
    {"lessthan", compares<Comparison::Less>, {"_"}, 1},
    {"lower", is_case<false>},
    {"lt", compares<Comparison::Less>, {"_"}, 1},
    {"mapping", plain<is_kind<Kind::Dict>>},
    {"ne", compares<Comparison::NotEqual>, {"_"}, 1},
    {"none", plain<is_kind<Kind::None>>},
    {"number", plain<is_number>},
    {"odd", is_parity<1>},
    {"sameas", is_same, {"other"}, 1},
    {"sequence", plain<is_sequence>},
    {"string", plain<is_kind<Kind::Text>>},
    {"true", plain<is_bool<true>>},
    {"undefined", plain<is_kind<Kind::Undefined>>},
    {"upper", is_case<true>},
}};

}  // namespace

const Builtin* find_test(std::string_view name) {
    const auto found =
        std::find_if(kTests.begin(), kTests.end(), [name](const Builtin& test) { return test.name == name; });
    return found == kTests.end() ? nullptr : &*found;
}

}  // namespace slipstream::jinja
