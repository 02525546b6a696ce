#include "runtime/text/chat/globals.h"

#include <locale.h>
#include <time.h>

#include <algorithm>
#include <array>

#include "runtime/text/chat/arguments.h"
#include "runtime/text/chat/attributes.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

constexpr std::size_t kMaxTimeFormatBytes = 256;
constexpr std::size_t kMaxTimeBytes = 16384;

// dict(mapping or pairs, name=value...), as items in order.
Dict make_dict(Runtime& runtime, std::string_view function, const Arguments& arguments) {
    if (arguments.positional.size() > 1) fail("{} expected at most 1 argument", function);
    Dict result;
    const auto set = [&](const Value& key, const Value& value) {
        if (!is_hashable(key)) fail("unhashable type: '{}'", type_name(key));
        runtime.spend_for(key);
        result.set(key, value);
    };
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
    return result;
}

Value make_range(Runtime& runtime, const Value& /*self*/, Arguments& arguments) {
    const auto given = bind("range", arguments, {"", "", ""}, 1);
    const std::int64_t first = int_of(given[0], "range()");
    const std::int64_t step = int_or(given[2], 1, "range()");
    if (step == 0) fail("range() arg 3 must not be zero");
    if (given[1].is_missing()) return Value(runtime.make<Range>(0, first, step));
    return Value(runtime.make<Range>(first, int_of(given[1], "range()"), step));
}

Value make_namespace(Runtime& runtime, const Value& /*self*/, Arguments& arguments) {
    const auto space = runtime.make_mutable<Namespace>();
    const Dict attributes = make_dict(runtime, "namespace", arguments);
    for (const auto& [key, value] : attributes.items()) {
        if (!key.is_text()) fail("a namespace takes names for its attributes, not {}", shown(key));
        space->set(key.view(), value);
    }
    return Value(std::static_pointer_cast<Object>(space));
}

class DictType final : public Object {
public:
    [[nodiscard]] std::string_view type_name() const override { return "TemplateDict"; }
    [[nodiscard]] bool is_callable() const override { return true; }
    [[nodiscard]] Value call(Runtime& runtime, Arguments& arguments) override {
        return runtime.dict(make_dict(runtime, "dict", arguments));
    }
    [[nodiscard]] std::optional<Value> attribute(Runtime& runtime, std::string_view name) override {
        if (name != "fromkeys") return std::nullopt;
        // That of any dict: it does not look at its own.
        return get_attribute(runtime, Value::dict(Dict()), name);
    }
};

class Cycler final : public Object {
public:
    explicit Cycler(std::vector<Value> items) : items_(Value::tuple(std::move(items))) {}
    [[nodiscard]] std::string_view type_name() const override { return "jinja2.utils.Cycler"; }
    [[nodiscard]] int depth() const override { return items_.depth() + 1; }
    [[nodiscard]] std::optional<Value> attribute(Runtime& runtime, std::string_view name) override {
        if (name == "current") return items_.items()[position_];
        if (name == "items") return items_;
        if (name == "pos") return Value(position_);
        const Value self(self_.lock());
        if (name == "next") return Value(runtime.make<Function>("next", next, self));
        if (name == "reset") return Value(runtime.make<Function>("reset", reset, self));
        return std::nullopt;
    }
    static Value make(Runtime& runtime, const Value& /*self*/, Arguments& arguments) {
        if (arguments.positional.empty()) fail("at least one item has to be provided");
        if (!arguments.named.empty()) fail("cycler() takes no keyword arguments");
        const auto cycler = runtime.make<Cycler>(std::move(arguments.positional));
        cycler->self_ = cycler;
        return Value(std::static_pointer_cast<Object>(cycler));
    }

private:
    static Value next(Runtime& /*runtime*/, const Value& self, Arguments& /*arguments*/) {
        auto& cycler = static_cast<Cycler&>(self.object());
        const auto& items = cycler.items_.items();
        return items[std::exchange(cycler.position_, (cycler.position_ + 1) % items.size())];
    }
    static Value reset(Runtime& /*runtime*/, const Value& self, Arguments& /*arguments*/) {
        static_cast<Cycler&>(self.object()).position_ = 0;
        return Value::none();
    }

    Value items_;
    std::size_t position_ = 0;
    std::weak_ptr<Object> self_;
};

class Joiner final : public Object {
public:
    explicit Joiner(Value separator) : separator_(std::move(separator)) {}
    [[nodiscard]] std::string_view type_name() const override { return "jinja2.utils.Joiner"; }
    [[nodiscard]] bool is_callable() const override { return true; }
    [[nodiscard]] int depth() const override { return separator_.depth() + 1; }
    [[nodiscard]] Value call(Runtime& /*runtime*/, Arguments& /*arguments*/) override {
        return std::exchange(is_used_, true) ? separator_ : Value("");
    }
    static Value make(Runtime& runtime, const Value& /*self*/, Arguments& arguments) {
        const Value separator = bind("joiner", arguments, {"sep"}, 0)[0];
        return Value(runtime.make<Joiner>(separator.is_missing() ? Value(", ") : separator));
    }

private:
    Value separator_;
    bool is_used_ = false;
};

Value raise_exception(Runtime& runtime, const Value& /*self*/, Arguments& arguments) {
    const auto given = bind("raise_exception", arguments, {"message"}, 1);
    throw TemplateError(std::string(to_text(runtime, given[0]).view()));
}

Value strftime_now(Runtime& runtime, const Value& /*self*/, Arguments& arguments) {
    const auto given = bind("strftime_now", arguments, {"format"}, 1);
    return runtime.text(format_time(text_of(given[0], "strftime_now() argument"), runtime.now()));
}

Value lipsum(Runtime& /*runtime*/, const Value& /*self*/, Arguments& /*arguments*/) {
    fail("the function lipsum() is not served in chat templates");
}

constexpr std::array<std::pair<std::string_view, Function::Body>, 7> kFunctions = {{
    {"cycler", Cycler::make},
    {"joiner", Joiner::make},
    {"lipsum", lipsum},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"range", make_range},
    {"strftime_now", strftime_now},
}};

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

Value find_global(Runtime& runtime, std::string_view name) {
    if (name == "dict") return Value(runtime.make<DictType>());
    const auto found =
        std::find_if(kFunctions.begin(), kFunctions.end(), [name](const auto& f) { return f.first == name; });
    return found == kFunctions.end() ? Value() : Value(runtime.make<Function>(found->first, found->second));
}

}  // namespace slipstream::jinja
