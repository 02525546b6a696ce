// Global functions, and the methods of dicts and sequences.
#include "runtime/text/chat/globals.h"

#include <locale.h>
#include <time.h>

#include <algorithm>
#include <array>

#include "runtime/text/chat/builtin.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

constexpr std::int64_t kMaxRange = 100000;  // as the sandbox of Jinja has it
constexpr std::size_t kMaxTimeFormatBytes = 256;
constexpr std::size_t kMaxTimeBytes = 4096;

Value range(Runtime& runtime, const Value& /*self*/, const Given& given) {
    const bool has_start = given.has(1);
    const std::int64_t start = has_start ? given.integer(0, 0, "range()") : 0;
    const std::int64_t stop = given.integer(has_start ? 1 : 0, 0, "range()");
    const std::int64_t step = given.integer(2, 1, "range()");
    if (step == 0) fail("range() arg 3 must not be zero");
    // In 128 bits: the distance may leave 64.
    const __int128 distance = step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
    const __int128 stride = step > 0 ? step : -static_cast<__int128>(step);
    const __int128 n = distance <= 0 ? 0 : (distance - 1) / stride + 1;
    if (n > kMaxRange) fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange);
    std::vector<Value> items;
    items.reserve(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) items.emplace_back(start + i * step);
    Value made = runtime.sequence(Kind::Range, std::move(items));
    made.sequence().shown =
        step == 1 ? fmt::format("range({}, {})", start, stop) : fmt::format("range({}, {}, {})", start, stop, step);
    return made;
}

// Of a dict or pairs, and names, in order.
template <typename Set>
void each_item(Runtime& runtime, std::string_view function, const Arguments& arguments, Set set) {
    if (arguments.positional.size() > 1) fail("{} expected at most 1 argument", function);
    if (!arguments.positional.empty()) {
        const Value& from = arguments.positional[0];
        if (from.is(Kind::Dict)) {
            for (const auto& [key, value] : from.dict().items()) set(key, value);
        } else {
            for (const Value& pair : to_items(runtime, from)) {
                const std::vector<Value> parts = to_items(runtime, pair);
                if (parts.size() != 2)
                    fail("dictionary update sequence element has length {}; 2 is required", parts.size());
                set(parts[0], parts[1]);
            }
        }
    }
    for (const auto& [name, value] : arguments.named) set(Value(name), value);
}

Value make_dict(Runtime& runtime, const Value& /*self*/, const Given& given) {
    Dict result;
    each_item(runtime, "dict", *given.all, [&](const Value& key, const Value& value) {
        if (!is_hashable(key)) fail("unhashable type: '{}'", type_name(key));
        result.set(key, value);
    });
    return runtime.dict(std::move(result));
}

Value make_namespace(Runtime& runtime, const Value& /*self*/, const Given& given) {
    const Ref<Namespace> space = runtime.make<Namespace>();
    runtime.keep(*space);
    each_item(runtime, "namespace", *given.all, [&](const Value& key, const Value& value) {
        if (!key.is_text()) fail("a namespace takes names for its attributes, not {}", shown(key));
        space->set(runtime, key.view(), value);
    });
    return {Kind::Object, space.get()};
}

Value raise_exception(Runtime& runtime, const Value& /*self*/, const Given& given) {
    throw TemplateError(std::string(to_text(runtime, given[0]).view()));
}

Value strftime_now(Runtime& runtime, const Value& /*self*/, const Given& given) {
    return runtime.text(format_time(given.text(0, "strftime_now() argument").bytes(), runtime.now()));
}

Value cannot_serve(Runtime& /*runtime*/, const Value& /*self*/, const Given& given) {
    fail("the function {}() is not served in chat templates", given.function);
}

constexpr auto kAnything = Builtin::Takes::Anything;
constexpr std::array<Builtin, 8> kFunctions = {{
    {"cycler", cannot_serve, {}, 0, kAnything},
    {"dict", make_dict, {}, 0, kAnything},
    {"joiner", cannot_serve, {}, 0, kAnything},
    {"lipsum", cannot_serve, {}, 0, kAnything},
    {"namespace", make_namespace, {}, 0, kAnything},
    {"raise_exception", raise_exception, {"message"}, 1},
    {"range", range, {"_", "_", "_"}, 1},
    {"strftime_now", strftime_now, {"format"}, 1},
}};

// ---- methods of containers

template <Kind kind>
Value view(Runtime& runtime, const Value& self, const Given& /*given*/) {
    std::vector<Value> items;
    runtime.check_items(self.dict().size());
    items.reserve(self.dict().size());
    for (const auto& [key, value] : self.dict().items())
        items.push_back(kind == Kind::Keys     ? key
                        : kind == Kind::Values ? value
                                               : runtime.sequence(Kind::Tuple, {key, value}));
    return runtime.sequence(kind, std::move(items));
}

Value get(Runtime& /*runtime*/, const Value& self, const Given& given) {
    if (!is_hashable(given[0])) fail("unhashable type: '{}'", type_name(given[0]));
    if (const Value* value = self.dict().find(given[0])) return *value;
    return given.has(1) ? given[1] : Value::none();
}

Value copy(Runtime& /*runtime*/, const Value& self, const Given& /*given*/) {
    return self;  // nothing can tell it from a copy, but `is sameas`
}

Value count(Runtime& runtime, const Value& self, const Given& given) {
    std::int64_t n = 0;
    for (const Value& item : self.items()) n += equal(runtime, item, given[0]) ? 1 : 0;
    return Value(n);
}

Value index(Runtime& runtime, const Value& self, const Given& given) {
    for (std::size_t i = 0; i < self.items().size(); ++i)
        if (equal(runtime, self.items()[i], given[0])) return Value(i);
    fail("{} is not in list", shown(given[0]));
}

constexpr std::array<Builtin, 5> kDictMethods = {{
    {"copy", copy},
    {"get", get, {"_", "_"}, 1},
    {"items", view<Kind::Items>},
    {"keys", view<Kind::Keys>},
    {"values", view<Kind::Values>},
}};
constexpr std::array<Builtin, 3> kListMethods = {{
    {"copy", copy},
    {"count", count, {"_"}, 1},
    {"index", index, {"_"}, 1},
}};

// The sandbox lets nobody change lists and dicts: what would do so is found, and fails when it is called.
Value refuse_change(Runtime& /*runtime*/, const Value& self, const Given& given) {
    fail("access to attribute {} of '{}' object is unsafe.", quoted(given.function), type_name(self));
}
constexpr Builtin change(std::string_view name) {
    return {name, refuse_change, {}, 0, kAnything};
}
constexpr std::array<Builtin, 8> kListChanges = {change("append"),  change("clear"), change("extend"),
                                                 change("insert"),  change("pop"),   change("remove"),
                                                 change("reverse"), change("sort")};
constexpr std::array<Builtin, 5> kDictChanges = {change("clear"), change("pop"), change("popitem"),
                                                 change("setdefault"), change("update")};

// The "C" locale as an object, so that names of days do not follow the program's.
class PlainLocale {
public:
    PlainLocale() : locale_(::newlocale(LC_ALL_MASK, "C", nullptr)) {}
    PlainLocale(const PlainLocale&) = delete;
    PlainLocale& operator=(const PlainLocale&) = delete;
    ~PlainLocale() {
        if (locale_ != nullptr) ::freelocale(locale_);
    }
    [[nodiscard]] locale_t get() const { return locale_; }

private:
    locale_t locale_;
};

const Builtin* find_in(std::span<const Builtin> table, std::string_view name) {
    const auto found =
        std::find_if(table.begin(), table.end(), [name](const Builtin& entry) { return entry.name == name; });
    return found == table.end() ? nullptr : &*found;
}

}  // namespace

std::string format_time(std::string_view format, const std::tm& time) {
    if (format.size() > kMaxTimeFormatBytes) fail("a time format of more than {} bytes", kMaxTimeFormatBytes);
    // What C does not know or knows of a zone: microseconds are none here, a zone is not known.
    std::string text;
    for (std::size_t i = 0; i < format.size(); ++i) {
        const char next = format[i] == '%' && i + 1 < format.size() ? format[i + 1] : '\0';
        if (next == 'f') text += "000000";
        if (next == '%') text += "%%";
        if (next == 'f' || next == 'z' || next == 'Z' || next == '%') {
            ++i;
        } else if (format[i] != '\0') {
            text.push_back(format[i]);
        }
    }
    const PlainLocale locale;
    if (locale.get() == nullptr) fail("no locale to format the time with");
    // A mark in front tells an empty result from one that does not fit.
    std::array<char, kMaxTimeBytes> buffer{};
    std::size_t length = ::strftime_l(buffer.data(), buffer.size(), ("x" + text).c_str(), &time, locale.get());
    if (length == 0) fail("a time of more than {} bytes", kMaxTimeBytes);
    return {buffer.data() + 1, length - 1};
}

const Builtin* find_global(std::string_view name) {
    return find_in(kFunctions, name);
}

const Builtin* find_method(const Value& self, std::string_view name) {
    if (self.is_text()) return find_in(text_methods(), name);
    if (self.is(Kind::Dict)) {
        const Builtin* method = find_in(kDictMethods, name);
        return method != nullptr ? method : find_in(kDictChanges, name);
    }
    if (!self.is(Kind::List) && !self.is(Kind::Tuple) && !self.is(Kind::Range)) return nullptr;
    const Builtin* method = find_in(kListMethods, name);
    return method != nullptr || !self.is(Kind::List) ? method : find_in(kListChanges, name);
}

}  // namespace slipstream::jinja
