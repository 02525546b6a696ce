// CHECK tests a precondition. If it does not hold, which is a bug of ours, CHECK prints the place and the values and
// aborts. User data must never decide a CHECK: bad input is an exception (error.h).
// DCHECK is a CHECK for hot loops: it does nothing if NDEBUG is defined, and then its condition is not evaluated.
#pragma once

#include <string>

#include <fmt/format.h>

namespace slipstream {

/// Prints `file:line: CHECK failed: condition: message` to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

}  // namespace slipstream

/// CHECK(cond) or CHECK(cond, "format {}", value...).
#define CHECK(condition, ...) \
    ((condition) ? void() : ::slipstream::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)))

#ifdef NDEBUG
#define DCHECK(condition, ...) ((void)sizeof(condition))
#else
#define DCHECK(condition, ...) CHECK(condition, __VA_ARGS__)
#endif
