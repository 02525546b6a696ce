#include "runtime/text/chat/builtin.h"

#include <algorithm>

#include "runtime/text/chat/spelling.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

class Function final : public Object {
public:
    Function(const Builtin& builtin, Value self) : builtin_(builtin), self_(std::move(self)) {}
    [[nodiscard]] std::string_view type_name() const override { return "builtin_function_or_method"; }
    [[nodiscard]] int depth() const override { return self_.depth() + 1; }
    [[nodiscard]] bool is_callable() const override { return true; }
    [[nodiscard]] Value call(Runtime& runtime, Arguments& arguments) override {
        return call_builtin(runtime, builtin_, self_, arguments);
    }

private:
    const Builtin& builtin_;
    Value self_;
};

void bind(const Builtin& builtin, Call& call) {
    const auto end = std::ranges::find(builtin.parameters, std::string_view());
    const auto names = std::span(builtin.parameters.begin(), end);
    const auto& positional = call.all.positional;
    if (positional.size() > names.size())
        fail("{}() takes at most {} argument{} ({} given)", builtin.name, names.size(), names.size() == 1 ? "" : "s",
             positional.size());
    std::ranges::copy(positional, call.given.begin());
    for (const auto& [name, value] : call.all.named) {
        const auto found = std::ranges::find(names, name);
        if (found == names.end() || name == "_")
            fail("{}() got an unexpected keyword argument {}", builtin.name, repr_of(name));
        Value& place = call.given[found - names.begin()];
        if (!place.is_missing()) fail("{}() got multiple values for argument {}", builtin.name, repr_of(name));
        place = value;
    }
    for (std::size_t i = 0; i < builtin.n_required; ++i)
        if (!call.has(i)) fail("{}() misses its argument {}", builtin.name, i + 1);
}

const Builtin* find_in(Builtins table, std::string_view name) {
    const auto found = std::ranges::find(table, name, &Builtin::name);
    return found == table.end() ? nullptr : &*found;
}

}  // namespace

const Text& Call::text(std::size_t i) const {
    refuse_undefined(given[i]);
    if (!given[i].is_text()) fail("{}() argument {} must be str, not {}", name, i + 1, type_name(given[i]));
    return given[i].text();
}

std::int64_t Call::integer(std::size_t i, std::int64_t otherwise) const {
    if (!has(i)) return otherwise;
    refuse_undefined(given[i]);
    if (!given[i].is_integral())
        fail("{}(): '{}' object cannot be interpreted as an integer", name, type_name(given[i]));
    return given[i].integer();
}

Value call_builtin(Runtime& runtime, const Builtin& builtin, const Value& self, const Arguments& arguments) {
    Call call{.runtime = runtime, .name = builtin.name, .self = self, .all = arguments};
    if (builtin.n_required != kAnything) bind(builtin, call);
    return builtin.body(call);
}

Value function_value(Runtime& runtime, const Builtin& function, const Value& self) {
    return {Kind::Object, runtime.make<Function>(function, self)};
}

const Builtin* find_filter(std::string_view name) {
    for (const Builtins table : {kTextFilters, kSequenceFilters, kValueFilters})
        if (const Builtin* filter = find_in(table, name)) return filter;
    return nullptr;
}

const Builtin* find_test(std::string_view name) {
    return find_in(kValueTests, name);
}

const Builtin* find_global(std::string_view name) {
    return find_in(kGlobalFunctions, name);
}

const Builtin* find_method(const Value& self, std::string_view name) {
    if (self.is_text()) return find_in(kTextMethods, name);
    if (self.is(Kind::Dict)) return find_in(kDictMethods, name);
    return self.is(Kind::List) ? find_in(kListMethods, name) : nullptr;
}

}  // namespace slipstream::jinja
