// Functions of ours: filters, tests, methods and the global functions, all of one form. What is not in their tables is
// not served, and says so by name.
#pragma once

#include <array>
#include <ctime>
#include <span>
#include <string>
#include <string_view>

#include "runtime/text/chat/runtime.h"

namespace slipstream::jinja {

/// One call of a builtin.
struct Call {
    static constexpr std::size_t kMostParameters = 4;

    [[nodiscard]] const Value& operator[](std::size_t i) const { return given[i]; }
    [[nodiscard]] bool has(std::size_t i) const { return !given[i].is_missing(); }
    [[nodiscard]] bool has_some(std::size_t i) const { return has(i) && !given[i].is_none(); }
    // As that type, or what stands in for one that was not given. Throw TemplateError where it is of another type.
    [[nodiscard]] const Text& text(std::size_t i) const;
    [[nodiscard]] std::int64_t integer(std::size_t i, std::int64_t otherwise) const;
    [[nodiscard]] bool truth(std::size_t i) const { return has(i) && is_true(given[i]); }

    Runtime& runtime;
    std::string_view name;                       // what was called
    Value self;                                  // what a filter, a test or a method is applied to
    const Arguments& all;                        // as they were given
    std::array<Value, kMostParameters> given{};  // one for each parameter; missing where none was given
};

struct Builtin {
    using Body = Value (*)(Call& call);
    std::string_view name;
    Body body;
    std::array<std::string_view, Call::kMostParameters> parameters{};  // "_" is not taken by name
    std::size_t n_required = 0;                                        // or kAnything
};
/// In place of the number of arguments: any may be given, and are in Call::all alone.
inline constexpr std::size_t kAnything = SIZE_MAX;
using Builtins = std::span<const Builtin>;

/// Throws TemplateError for arguments that do not fit.
[[nodiscard]] Value call_builtin(Runtime& runtime, const Builtin& builtin, const Value& self,
                                 const Arguments& arguments);
/// A function, or a method of `self`, as a value of its own.
[[nodiscard]] Value function_value(Runtime& runtime, const Builtin& function, const Value& self);

/// Null where there is none of that name. Tests return a bool.
[[nodiscard]] const Builtin* find_filter(std::string_view name);
[[nodiscard]] const Builtin* find_test(std::string_view name);
[[nodiscard]] const Builtin* find_global(std::string_view name);
/// What `self` has by that name; methods that would change it fail when they are called.
[[nodiscard]] const Builtin* find_method(const Value& self, std::string_view name);

/// Their tables, by file.
extern const Builtins kTextFilters, kTextMethods, kSequenceFilters, kValueFilters, kValueTests, kGlobalFunctions;
extern const Builtins kDictMethods, kListMethods;

/// What strftime_now() tells. Throws TemplateError for formats and results that are too long, and for %f, %z and %Z.
[[nodiscard]] std::string format_time(std::string_view format, const std::tm& time);

}  // namespace slipstream::jinja
