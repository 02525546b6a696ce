// CHECK: a broken precondition is a bug of ours; it prints place and values and aborts. Never fed by user data.
// DCHECK: the same in hot loops, compiled only where NDEBUG is not set.
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
