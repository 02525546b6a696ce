#include "runtime/text/chat/builtin.h"

#include <algorithm>

#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

class Function final : public Object {
public:
    Function(const Builtin& builtin, Value self) : builtin_(builtin), self_(std::move(self)) {}
    [[nodiscard]] std::string_view type_name() const override { return "builtin_function_or_method"; }
    [[nodiscard]] std::string shown() const override { return fmt::format("<function {}>", builtin_.name); }
    [[nodiscard]] int depth() const override { return self_.depth() + 1; }
    [[nodiscard]] bool is_callable() const override { return true; }
    [[nodiscard]] Value call(Runtime& runtime, Arguments& arguments) override {
        return call_builtin(runtime, builtin_, self_, arguments);
    }

private:
    const Builtin& builtin_;
    Value self_;
};

std::size_t n_parameters(const Builtin& builtin) {
    const auto& names = builtin.parameters;
    return static_cast<std::size_t>(std::find(names.begin(), names.end(), std::string_view()) - names.begin());
}

Given bind(const Builtin& builtin, const Arguments& arguments) {
    Given given;
    const std::size_t n = n_parameters(builtin);
    if (arguments.positional.size() > n)
        fail("{}() takes at most {} argument{} ({} given)", builtin.name, n, n == 1 ? "" : "s",
             arguments.positional.size());
    std::copy(arguments.positional.begin(), arguments.positional.end(), given.values.begin());
    for (const auto& [name, value] : arguments.named) {
        const auto names = std::span(builtin.parameters).first(n);
        const auto found = std::find(names.begin(), names.end(), name);
        if (found == names.end() || name == "_")
            fail("{}() got an unexpected keyword argument {}", builtin.name, quoted(name));
        Value& place = given.values[static_cast<std::size_t>(found - names.begin())];
        if (!place.is_missing()) fail("{}() got multiple values for argument {}", builtin.name, quoted(name));
        place = value;
    }
    for (std::size_t i = 0; i < builtin.n_required; ++i)
        if (given.values[i].is_missing()) fail("{}() misses its argument {}", builtin.name, i + 1);
    return given;
}

const Builtin* find_in(std::span<const Builtin> table, std::string_view name) {
    const auto found =
        std::find_if(table.begin(), table.end(), [name](const Builtin& entry) { return entry.name == name; });
    return found == table.end() ? nullptr : &*found;
}

}  // namespace

const Text& Given::text(std::size_t i, std::string_view what) const {
    refuse_undefined(values[i]);
    if (!values[i].is_text()) fail("{} must be str, not {}", what, type_name(values[i]));
    return values[i].text();
}

std::int64_t Given::integer(std::size_t i, std::int64_t otherwise, std::string_view what) const {
    if (!has(i)) return otherwise;
    refuse_undefined(values[i]);
    if (!values[i].is_integral())
        fail("{}: '{}' object cannot be interpreted as an integer", what, type_name(values[i]));
    return values[i].integer();
}

Value call_builtin(Runtime& runtime, const Builtin& builtin, const Value& self, const Arguments& arguments) {
    Given given = builtin.takes == Builtin::Takes::Anything ? Given() : bind(builtin, arguments);
    given.all = &arguments;
    given.function = builtin.name;
    return builtin.body(runtime, self, given);
}

Value bound_method(Runtime& runtime, const Builtin& method, const Value& self) {
    return runtime.make_object<Function>(method, self);
}

const Builtin* find_filter(std::string_view name) {
    const Builtin* filter = find_in(text_filters(), name);
    return filter != nullptr ? filter : find_in(sequence_filters(), name);
}

}  // namespace slipstream::jinja
