// The functions that templates can call: filters, tests, methods and global functions, in tables of one type. A
// function that is in no table is not supported; using it fails with its name.
#pragma once

#include <array>
#include <ctime>
#include <span>
#include <string>
#include <string_view>

#include "runtime/text/chat/runtime.h"

namespace slipstream::jinja {

/// One call of a builtin, with its arguments bound to parameters.
struct Call {
    static constexpr std::size_t kMostParameters = 4;

    [[nodiscard]] const Value& operator[](std::size_t i) const { return given[i]; }
    [[nodiscard]] bool has(std::size_t i) const { return !given[i].is_missing(); }
    [[nodiscard]] bool has_some(std::size_t i) const { return has(i) && !given[i].is_none(); }
    // text() returns argument `i` as a str, integer() as an int. Both throw TemplateError if the argument is of another
    // type; integer() returns `otherwise` if it is missing.
    [[nodiscard]] const Text& text(std::size_t i) const;
    [[nodiscard]] std::int64_t integer(std::size_t i, std::int64_t otherwise) const;
    [[nodiscard]] bool truth(std::size_t i) const { return has(i) && is_true(given[i]); }

    Runtime& runtime;
    std::string_view name;                       // name of the function, for messages
    Value self;                                  // value to which a filter, a test or a method is applied
    const Arguments& all;                        // all arguments as the template gave them, not owned
    std::array<Value, kMostParameters> given{};  // [parameter]; Missing: not given
};

struct Builtin {
    using Body = Value (*)(Call& call);
    std::string_view name;
    Body body;
    std::array<std::string_view, Call::kMostParameters> parameters{};  // names; "_": positional only
    std::size_t n_required = 0;                                        // number of required parameters, or kAnything
};
/// Value of n_required for a function that takes any number of arguments. It finds them in Call::all; Call::given is
/// empty.
inline constexpr std::size_t kAnything = SIZE_MAX;
using Builtins = std::span<const Builtin>;

/// Calls `builtin` on `self` and returns its result. Throws TemplateError if the arguments do not fit the parameters or
/// the function fails.
[[nodiscard]] Value call_builtin(Runtime& runtime, const Builtin& builtin, const Value& self,
                                 const Arguments& arguments);
/// Returns a value that calls `function`, bound to `self` if it is a method. Charged to the account of `runtime`.
[[nodiscard]] Value function_value(Runtime& runtime, const Builtin& function, const Value& self);

/// Return the function called `name`, or null if there is none. Tests return a bool.
[[nodiscard]] const Builtin* find_filter(std::string_view name);
[[nodiscard]] const Builtin* find_test(std::string_view name);
[[nodiscard]] const Builtin* find_global(std::string_view name);
/// Returns the method `name` of `self`, or null if there is none. Methods that would change `self` are found, too; they
/// fail when they are called.
[[nodiscard]] const Builtin* find_method(const Value& self, std::string_view name);

/// Tables of builtins, each defined in the file of its functions.
extern const Builtins kTextFilters, kTextMethods, kSequenceFilters, kValueFilters, kValueTests, kGlobalFunctions;
extern const Builtins kDictMethods, kListMethods;

/// Returns `time` written by `format` as strftime() does (for strftime_now()). Throws TemplateError if `format` has
/// more than 256 bytes, if the result has more than 4096 bytes, and for %f, %z and %Z.
[[nodiscard]] std::string format_time(std::string_view format, const std::tm& time);

}  // namespace slipstream::jinja
