// Functions of ours: filters, tests, methods and the global functions, all of one form. What is not in their tables is
// not served, and says so by name.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "runtime/text/chat/object.h"
#include "runtime/text/chat/runtime.h"

namespace slipstream::jinja {

/// The arguments of a call, one for each parameter; missing where none was given.
struct Given {
    static constexpr std::size_t kMost = 4;
    const Value& operator[](std::size_t i) const { return values[i]; }
    [[nodiscard]] bool has(std::size_t i) const { return !values[i].is_missing(); }
    [[nodiscard]] bool has_some(std::size_t i) const { return has(i) && !values[i].is_none(); }
    // As that type, or what stands in for one that was not given; `what` names the parameter where it is another.
    [[nodiscard]] const Text& text(std::size_t i, std::string_view what) const;
    [[nodiscard]] std::int64_t integer(std::size_t i, std::int64_t otherwise, std::string_view what) const;
    [[nodiscard]] bool truth(std::size_t i, bool otherwise) const { return has(i) ? is_true(values[i]) : otherwise; }

    std::array<Value, kMost> values;
    const Arguments* all = nullptr;  // of a function that takes any
    std::string_view function;       // what was called
};

struct Builtin {
    using Body = Value (*)(Runtime& runtime, const Value& self, const Given& given);
    enum class Takes : std::uint8_t { Parameters, Anything };

    std::string_view name;
    Body body;
    std::array<std::string_view, Given::kMost> parameters;  // "_" is not taken by name
    std::size_t n_required = 0;
    Takes takes = Takes::Parameters;
};

/// Throws TemplateError for arguments that do not fit.
[[nodiscard]] Value call_builtin(Runtime& runtime, const Builtin& builtin, const Value& self,
                                 const Arguments& arguments);
/// A method as a value of its own.
[[nodiscard]] Value bound_method(Runtime& runtime, const Builtin& method, const Value& self);

/// Null where there is none of that name. Tests return a bool.
[[nodiscard]] const Builtin* find_filter(std::string_view name);
[[nodiscard]] const Builtin* find_test(std::string_view name);
[[nodiscard]] const Builtin* find_global(std::string_view name);
/// What `self` has by that name; methods that would change it fail when they are called.
[[nodiscard]] const Builtin* find_method(const Value& self, std::string_view name);

/// Their tables, by file.
[[nodiscard]] std::span<const Builtin> text_filters();
[[nodiscard]] std::span<const Builtin> sequence_filters();
[[nodiscard]] std::span<const Builtin> text_methods();

}  // namespace slipstream::jinja
