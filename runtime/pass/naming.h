// Says in an error what was on its way.
#pragma once

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace slipstream {

/// Calls `call`; an Error that it throws becomes an IoError that begins with `what`: "weights", "KV", "rows".
template <typename Call>
decltype(auto) naming(const char* what, const Call& call) {
    try {
        return call();
    } catch (const Error& error) {
        throw IoError(fmt::format("{}: {}", what, error.what()));
    }
}

}  // namespace slipstream
