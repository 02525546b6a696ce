// Filters for values of any type, tests ("x is y"), and the global functions.
#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/text/chat/builtin.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/spelling.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

constexpr std::int64_t kMaxRange = 100000;  // limits the items of range(), as in Jinja's sandbox
// Limits the format given to strftime_now(), in bytes: the time that formatting takes must be bounded.
constexpr std::size_t kMaxTimeFormatBytes = 256;
// Limits the result of strftime_now(), in bytes: the size of the buffer on the stack.
constexpr std::size_t kMaxTimeBytes = 4096;
constexpr std::int64_t kMaxJsonIndent = 1000;  // limits the spaces per level; larger values are lowered to it

Value to_json(Call& call) {
    JsonStyle style{.item_separator = {call.has_some(1) ? "," : ", ", {}}, .key_separator = {": ", {}}};
    style.is_ascii = call.truth(0);
    if (call[1].is_text()) {
        style.indent = call[1].text().marked;
    } else if (call.has_some(1)) {
        const std::int64_t width = std::clamp<std::int64_t>(call.integer(1, 0), 0, kMaxJsonIndent);
        style.indent = MarkedText{std::string(width, ' '), {}};
    }
    if (call.has_some(2)) {
        const std::vector<Value> separators = to_items(call.runtime, call[2]);
        if (separators.size() != 2 || !separators[0].is_text() || !separators[1].is_text())
            fail("tojson() separators must be two texts");
        style.item_separator = separators[0].text().marked;
        style.key_separator = separators[1].text().marked;
    }
    style.sorts_keys = call.truth(3);
    TextBuilder out = call.runtime.builder();
    write_json(call.runtime, out, call.self, style);
    return call.runtime.text(out);
}

Value from_json(Call& call) {
    refuse_undefined(call.self);
    if (!call.self.is_text()) fail("the input of from_json must be str, not {}", type_name(call.self));
    const Origin origin = call.self.text().marked.said.empty() ? Origin::Template : Origin::Said;
    return parse_json(call.self.view(), "from_json", &call.runtime, origin);
}

Value integer(Call& call) {
    const Value& value = call.self;
    refuse_undefined(value);
    if (value.is(Kind::LongInt)) return value;
    if (value.is_integral()) return Value(value.integer());
    std::optional<double> number;
    if (value.is_text()) {
        call.runtime.spend_chars(value.view().size());
        if (const auto whole = parse_int(value.view())) return Value(*whole);
        number = parse_float(value.view());
    } else if (value.is(Kind::Float)) {
        number = value.real();
    }
    if (!number || std::isnan(*number)) return call.has(0) ? call[0] : Value(0);
    const auto whole = exact_integer(std::trunc(*number));
    if (!whole) fail("an integer leaves 64 bits, which is as large as they go here");
    return Value(*whole);
}

Value real(Call& call) {
    const Value& value = call.self;
    refuse_undefined(value);
    if (value.is_number()) return Value(value.real());
    std::optional<double> number;
    if (value.is_text() || value.is(Kind::LongInt)) {
        call.runtime.spend_chars(value.view().size());
        number = parse_float(value.view());
    }
    if (number && value.is(Kind::LongInt) && std::isinf(*number)) fail("int too large to convert to float");
    return number ? Value(*number) : call.has(0) ? call[0] : Value(0.0);
}

Value absolute(Call& call) {
    const Value& value = call.self;
    if (!value.is_number()) fail("bad operand type for abs(): '{}'", type_name(value));
    if (value.is(Kind::Float)) return Value(std::fabs(value.real()));
    return value.integer() < 0 ? calculate(Arithmetic::Subtract, Value(0), value) : Value(value.integer());
}

// Returns `number` rounded to `digits` decimal places, ties to even, as Python's round() does: judged by the exact
// value of the number, not by the product with a power of ten.
double rounded(double number, std::int64_t digits) {
    // Decimal places: beyond the first, rounding changes no double; below the second, it makes every double 0.
    constexpr std::int64_t kMostDigits = 323, kFewestDigits = -308;
    if (!std::isfinite(number) || number == 0.0 || digits > kMostDigits) return number;
    if (digits < kFewestDigits) return std::copysign(0.0, number);
    // fmt rounds the exact value of the number when it writes `digits` decimal places, so those are read back.
    if (digits >= 0) return *parse_float(fmt::format("{:.{}f}", number, digits));
    // The exponent is that of the first digit.
    const std::string first = fmt::format("{:.17e}", number);
    const std::int64_t exponent = *parse_int(first.substr(first.find('e') + 1));
    const std::int64_t significant = exponent + 1 + digits;
    if (significant > 0) return *parse_float(fmt::format("{:.{}e}", number, significant - 1));
    const double unit = *parse_float(fmt::format("1e{}", -digits));
    return std::copysign(significant == 0 && std::fabs(number) > unit / 2 ? unit : 0.0, number);
}

// Returns `number` rounded to a multiple of 10^-digits, ties to even.
std::int64_t rounded(std::int64_t number, std::int64_t digits) {
    if (digits >= 0) return number;
    std::int64_t unit = 1;
    for (std::int64_t i = digits; i < 0; ++i)
        if (__builtin_mul_overflow(unit, 10, &unit)) return 0;  // more than twice any number of 64 bits
    std::int64_t rest = number % unit;
    if (rest < 0) rest += unit;
    std::int64_t result = number - rest;
    const bool up = rest > unit - rest || (rest == unit - rest && (result / unit) % 2 != 0);
    if (__builtin_sub_overflow(number, rest, &result) || (up && __builtin_add_overflow(result, unit, &result)))
        fail("an integer leaves 64 bits, which is as large as they go here");
    return result;
}

Value round(Call& call) {
    // Limits the decimal places of "ceil" and "floor": 10^22 is the largest power of ten that a double has exactly.
    constexpr std::int64_t kMostPlaces = 22;
    const std::string_view method = call.has(1) ? call.text(1).bytes() : "common";
    if (method != "common" && method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
    const bool is_whole = call[0].is(Kind::Float) && method != "common" && exact_integer(call[0].real());
    const std::int64_t digits = is_whole ? *exact_integer(call[0].real()) : call.integer(0, 0);
    refuse_undefined(call.self);
    if (!call.self.is_number()) fail("type {} doesn't define __round__ method", type_name(call.self));
    if (method == "common" && call.self.is_integral()) return Value(rounded(call.self.integer(), digits));
    if (method == "common") {
        // Steps that rounding charges to the budget, since it writes and reads up to 632 digits (50 us).
        constexpr std::int64_t kSteps = 2000;
        call.runtime.spend(kSteps);
        const double result = rounded(call.self.real(), digits);
        if (std::isinf(result) && !std::isinf(call.self.real())) fail("rounded value too large to represent");
        return Value(result);
    }
    if (digits > kMostPlaces || digits < -kMostPlaces)
        fail("round() to {} places by '{}' is not served in chat templates", digits, method);
    const double power = std::pow(10.0, static_cast<double>(std::abs(digits)));
    const double factor = digits < 0 ? 1.0 / power : power;
    const double scaled = call.self.real() * factor;
    if (!std::isfinite(scaled)) fail("cannot convert float {} to integer", float_text(scaled));
    // Python's ceil() and floor() give an int, which has no negative zero.
    return Value(((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) + 0.0) / factor);
}

Value attribute_only(Call& call) {
    refuse_undefined(call.self);
    const std::string_view name = call.text(0).bytes();
    if (auto value = own_attribute(call.runtime, call.self, name)) return std::move(*value);
    return call.runtime.undefined({Undefined::Of::Attribute, std::string(name), type_name(call.self)});
}

Value otherwise(Call& call) {
    const bool is_there = call.truth(1) ? is_true(call.self) : !call.self.is_undefined();
    return is_there ? call.self : call.has(0) ? call[0] : Value("");
}

constexpr std::array<Builtin, 9> kFilters = {{
    {"abs", absolute},
    {"attr", attribute_only, {"name"}, 1},
    {"d", otherwise, {"default_value", "boolean"}},
    {"default", otherwise, {"default_value", "boolean"}},
    {"float", real, {"default"}},
    {"from_json", from_json},
    {"int", integer, {"default"}},
    {"round", round, {"precision", "method"}},
    {"tojson", to_json, {"ensure_ascii", "indent", "separators", "sort_keys"}},
}};

template <Kind... kinds>
Value is_kind(Call& call) {
    return Value((call.self.is(kinds) || ...));
}

template <bool wanted>
Value is_bool(Call& call) {
    return Value(call.self.is(Kind::Bool) && call.self.truth() == wanted);
}

template <Comparison comparison>
constexpr Builtin compares(std::string_view name) {
    return {name, [](Call& call) { return Value(compare(call.runtime, comparison, call.self, call[0])); }, {"_"}, 1};
}

// Returns self % divisor == rest.
Value leaves(Call& call, const Value& divisor, std::int64_t rest) {
    const Value found = arithmetic(call.runtime, Arithmetic::Modulo, call.self, divisor);
    return Value(equal(call.runtime, found, Value(rest)));
}

// The test `sameas`: Python's `is`. Throws TemplateError for two texts, or two numbers of one type: whether they are
// the same object depends on how Python keeps them.
Value same_as(Call& call) {
    const Value& a = call.self;
    const Value& b = call[0];
    const auto depends = [](const Value& value) {
        return value.is_text() || (value.is_number() && !value.is(Kind::Bool));
    };
    if (a.kind() == b.kind() && depends(a)) fail("'sameas' of two values of type {} is not served", type_name(a));
    if (a.is(Kind::Bool) && b.is(Kind::Bool)) return Value(a.truth() == b.truth());
    return Value((a.is_none() && b.is_none()) || a.is_same_cell(b));
}

// str.islower() or str.isupper() of any value: some letter has the case that `is_wanted` tests, and none that of
// `is_other`.
Value has_case(Call& call, bool (*is_wanted)(char32_t), bool (*is_other)(char32_t)) {
    const Value text = to_text(call.runtime, call.self);
    call.runtime.spend_chars(text.view().size());
    bool found = false;
    for (std::string_view rest = text.view(); !rest.empty();) {
        const char32_t code = take_char(rest).code;
        if (is_other(code)) return Value(false);
        found = found || is_wanted(code);
    }
    return Value(found);
}

constexpr std::array kTests = {
    compares<Comparison::NotEqual>("!="),
    compares<Comparison::Less>("<"),
    compares<Comparison::LessOrEqual>("<="),
    compares<Comparison::Equal>("=="),
    compares<Comparison::Greater>(">"),
    compares<Comparison::GreaterOrEqual>(">="),
    Builtin{"boolean", is_kind<Kind::Bool>},
    Builtin{"callable",
            [](Call& call) {
                // An undefined value counts as callable, although calling it fails.
                return Value(call.self.is_undefined() ||
                             (call.self.is(Kind::Object) && call.self.object().is_callable()));
            }},
    Builtin{"defined", [](Call& call) { return Value(!call.self.is_undefined()); }},
    Builtin{"divisibleby", [](Call& call) { return leaves(call, call[0], 0); }, {"num"}, 1},
    compares<Comparison::Equal>("eq"),
    compares<Comparison::Equal>("equalto"),
    Builtin{"even", [](Call& call) { return leaves(call, Value(2), 0); }},
    Builtin{"false", is_bool<false>},
    Builtin{"float", is_kind<Kind::Float>},
    compares<Comparison::GreaterOrEqual>("ge"),
    compares<Comparison::Greater>("greaterthan"),
    compares<Comparison::Greater>("gt"),
    compares<Comparison::In>("in"),
    Builtin{"integer", is_kind<Kind::Int, Kind::LongInt>},
    Builtin{"iterable", [](Call& call) { return Value(call.self.is_iterable()); }},
    compares<Comparison::LessOrEqual>("le"),
    compares<Comparison::Less>("lessthan"),
    Builtin{"lower", [](Call& call) { return has_case(call, is_lower, is_upper); }},
    compares<Comparison::Less>("lt"),
    Builtin{"mapping", is_kind<Kind::Dict>},
    compares<Comparison::NotEqual>("ne"),
    Builtin{"none", is_kind<Kind::None>},
    Builtin{"number", is_kind<Kind::Int, Kind::LongInt, Kind::Float, Kind::Bool>},
    Builtin{"odd", [](Call& call) { return leaves(call, Value(2), 1); }},
    Builtin{"sameas", same_as, {"other"}, 1},
    Builtin{"sequence", is_kind<Kind::Text, Kind::List, Kind::Tuple, Kind::Range, Kind::Dict, Kind::Undefined>},
    Builtin{"string", is_kind<Kind::Text>},
    Builtin{"true", is_bool<true>},
    Builtin{"undefined", is_kind<Kind::Undefined>},
    Builtin{"upper", [](Call& call) { return has_case(call, is_upper, is_lower); }},
};

Value range(Call& call) {
    const bool has_start = call.has(1);
    const std::int64_t start = has_start ? call.integer(0, 0) : 0;
    const std::int64_t stop = call.integer(has_start ? 1 : 0, 0);
    const std::int64_t step = call.integer(2, 1);
    if (step == 0) fail("range() arg 3 must not be zero");
    const double about = (static_cast<double>(stop) - static_cast<double>(start)) / static_cast<double>(step);
    std::vector<Value> items;
    items.reserve(static_cast<std::size_t>(std::clamp(about + 1, 0.0, static_cast<double>(kMaxRange))));
    for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
        if (std::ssize(items) == kMaxRange)
            fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange);
        items.emplace_back(i);
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    Value made = call.runtime.sequence(Kind::Range, std::move(items));
    made.sequence().shown =
        step == 1 ? fmt::format("range({}, {})", start, stop) : fmt::format("range({}, {}, {})", start, stop, step);
    return made;
}

// namespace(): takes one dict, keyword arguments, or both.
Value make_namespace(Call& call) {
    const auto space = call.runtime.make<Namespace>();
    call.runtime.keep(space);
    const std::vector<Value>& given = call.all.positional;
    if (given.size() > 1 || (given.size() == 1 && !given[0].is(Kind::Dict))) fail("namespace() takes one dict");
    if (!given.empty())
        for (const auto& [key, value] : given[0].dict().items()) {
            if (!key.is_text()) fail("a namespace takes names for its attributes, not {}", shown(key));
            space->set(call.runtime, key.view(), value);
        }
    for (const auto& [name, value] : call.all.named) space->set(call.runtime, name, value);
    return {Kind::Object, space};
}

Value raise_exception(Call& call) {
    throw TemplateError(std::string(to_text(call.runtime, call[0]).view()));
}

Value strftime_now(Call& call) {
    return call.runtime.text(format_time(call.text(0).bytes(), call.runtime.now()));
}

constexpr std::array<Builtin, 4> kFunctions = {{
    {"namespace", make_namespace, {}, kAnything},
    {"raise_exception", raise_exception, {"message"}, 1},
    {"range", range, {"_", "_", "_"}, 1},
    {"strftime_now", strftime_now, {"format"}, 1},
}};

}  // namespace

const Builtins kValueFilters = kFilters;
const Builtins kValueTests = kTests;
const Builtins kGlobalFunctions = kFunctions;

std::string format_time(std::string_view format, const std::tm& time) {
    if (format.size() > kMaxTimeFormatBytes) fail("a time format of more than {} bytes", kMaxTimeFormatBytes);
    for (std::size_t i = 0; (i = format.find('%', i)) < format.size(); i += 2)
        if (i + 1 < format.size() && std::string_view("fzZ").find(format[i + 1]) != std::string_view::npos)
            fail("%{} of strftime_now() is not served in chat templates", format[i + 1]);
    // strftime() returns 0 both for an empty result and for one that does not fit; the x keeps a result from being
    // empty.
    const std::string text = fmt::format("x{}", format);
    std::array<char, kMaxTimeBytes> buffer{};
    const std::size_t length = std::strftime(buffer.data(), buffer.size(), text.c_str(), &time);
    if (length == 0) fail("a time of more than {} bytes", kMaxTimeBytes);
    return {buffer.data() + 1, length - 1};
}

}  // namespace slipstream::jinja
