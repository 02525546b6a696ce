// Filters on numbers and single values.
#include <cmath>

#include "runtime/text/chat/arguments.h"
#include "runtime/text/chat/attributes.h"
#include "runtime/text/chat/filter_bodies.h"
#include "runtime/text/chat/numbers.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja::filters {

Value absolute(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("abs", arguments, {}, 0));
    refuse_undefined(input);
    if (input.is(Kind::Float)) return Value(std::fabs(input.real()));
    if (!input.is_integral()) fail("bad operand type for abs(): '{}'", type_name(input));
    return input.integer() < 0 ? negate(input) : Value(input.integer());
}

Value rounded(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto given = bind("round", arguments, {"precision", "method"}, 0);
    const bool to_whole = given[0].is_none();  // round(number, None) is an int
    const std::int64_t precision = to_whole ? 0 : int_or(given[0], 0, "round() precision");
    const std::string_view method = is_given(given[1]) ? text_of(given[1], "round() method") : "common";
    if (method != "common" && method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
    refuse_undefined(input);
    if (!input.is_number()) fail("type {} doesn't define __round__ method", type_name(input));
    if (method == "common") {
        if (input.is(Kind::Float)) {
            const double result = round_float(input.real(), precision);
            if (!to_whole) return Value(result);
            if (const auto whole = jinja::truncate(result)) return Value(*whole);
            fail("cannot convert float NaN to integer");
        }
        return Value(round_int(input.integer(), precision));
    }
    const Value unit = calculate(Arithmetic::Power, Value(10), Value(precision));
    const double scaled = arithmetic(runtime, Arithmetic::Multiply, input, unit).real();
    const auto whole = jinja::truncate(method == "ceil" ? std::ceil(scaled) : std::floor(scaled));
    if (!whole) fail("cannot convert float NaN to integer");
    return calculate(Arithmetic::Divide, Value(*whole), unit);
}

Value to_int(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto given = bind("int", arguments, {"default", "base"}, 0);
    const Value otherwise = is_given(given[0]) ? given[0] : Value(0);
    refuse_undefined(input);
    std::optional<std::int64_t> number;
    if (input.is_text()) {
        runtime.spend(2 * input.weight());  // read as an integer, and as a real
        // With a base that is none, no text is a number.
        const std::int64_t base = given[1].is_integral() ? given[1].integer() : is_given(given[1]) ? -1 : 10;
        if (base == 0 || (base >= 2 && base <= 36)) number = parse_int(input.view(), static_cast<int>(base));
        // "42.23" is 42.
        const auto real = number ? std::nullopt : parse_float(input.view());
        if (real && std::isfinite(*real)) number = jinja::truncate(*real);
    } else if (input.is_integral()) {
        number = input.integer();
    } else if (input.is(Kind::Float)) {
        number = jinja::truncate(input.real());
    }
    return number ? Value(*number) : otherwise;
}

Value to_float(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto given = bind("float", arguments, {"default"}, 0);
    const Value otherwise = is_given(given[0]) ? given[0] : Value(0.0);
    refuse_undefined(input);
    runtime.spend_for(input);
    if (input.is_number()) return Value(input.real());
    const auto number = input.is_text() ? parse_float(input.view()) : std::nullopt;
    return number ? Value(*number) : otherwise;
}

Value file_size(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const bool binary = truth_or(bind("filesizeformat", arguments, {"binary"}, 0)[0], false);
    refuse_undefined(input);
    runtime.spend_for(input);
    const auto given = input.is_number() ? std::optional(input.real())
                       : input.is_text() ? parse_float(input.view())
                                         : std::nullopt;
    if (!given || !std::isfinite(*given)) fail("filesizeformat takes a number, not {}", shown(input));
    const double bytes = *given;
    const double base = binary ? 1024 : 1000;
    if (bytes == 1) return Value("1 Byte");
    if (bytes < base) return runtime.text(fmt::format("{:.0f} Bytes", std::trunc(bytes) + 0.0));
    constexpr std::string_view kPrefixes = "KMGTPEZY";
    double unit = base;
    std::size_t i = 0;
    for (; i + 1 < kPrefixes.size() && bytes >= unit * base; ++i) unit *= base;
    const char prefix = kPrefixes[i] == 'K' && !binary ? 'k' : kPrefixes[i];
    return runtime.text(fmt::format("{:.1f} {}{}", base * bytes / (unit * base), prefix, binary ? "iB" : "B"));
}

Value with_default(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
    const auto given = bind("default", arguments, {"default_value", "boolean"}, 0);
    if (!input.is_undefined() && (!truth_or(given[1], false) || is_true(input))) return input;
    return is_given(given[0]) ? given[0] : Value("");
}

Value attribute(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto given = bind("attr", arguments, {"name"}, 1);
    return get_attribute_only(runtime, input, text_of(given[0], "attr() name"));
}

}  // namespace slipstream::jinja::filters
