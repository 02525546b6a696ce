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

constexpr std::int64_t kMaxRange = 100000;        // items of range(), as in Jinja's sandbox
constexpr std::size_t kMaxTimeFormatBytes = 256;  // of the format given to strftime_now()
constexpr std::size_t kMaxTimeBytes = 4096;       // of the result of strftime_now()
constexpr std::int64_t kMaxJsonIndent = 1000;     // spaces per level; larger values are cut to it

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

Value otherwise(Call& call) {
    const bool is_there = call.truth(1) ? is_true(call.self) : !call.self.is_undefined();
    return is_there ? call.self : call.has(0) ? call[0] : Value("");
}

constexpr std::array<Builtin, 5> kFilters = {{
    {"d", otherwise, {"default_value", "boolean"}},
    {"default", otherwise, {"default_value", "boolean"}},
    {"from_json", from_json},
    {"int", integer, {"default"}},
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

constexpr std::array<Builtin, 12> kTests = {{
    {"boolean", is_kind<Kind::Bool>},
    {"defined", [](Call& call) { return Value(!call.self.is_undefined()); }},
    {"equalto", [](Call& call) { return Value(equal(call.runtime, call.self, call[0])); }, {"_"}, 1},
    {"false", is_bool<false>},
    {"iterable", [](Call& call) { return Value(call.self.is_iterable()); }},
    {"mapping", is_kind<Kind::Dict>},
    {"none", is_kind<Kind::None>},
    {"number", is_kind<Kind::Int, Kind::LongInt, Kind::Float, Kind::Bool>},
    {"sequence", is_kind<Kind::Text, Kind::List, Kind::Tuple, Kind::Range, Kind::Dict, Kind::Undefined>},
    {"string", is_kind<Kind::Text>},
    {"true", is_bool<true>},
    {"undefined", is_kind<Kind::Undefined>},
}};

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
