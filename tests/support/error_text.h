// Returns the message of an exception, for tests of messages.
#pragma once

#include <string>

#include "kernels/base/error.h"

namespace slipstream {

/// Calls `call` and returns the message of the exception of type E that it throws (default: any of this project), or
/// "nothing thrown". Other exceptions are not caught, so they fail the test.
template <typename E = Error, typename Call>
[[nodiscard]] std::string error_text(Call&& call) {
    try {
        call();
    } catch (const E& error) {
        return error.what();
    }
    return "nothing thrown";
}

}  // namespace slipstream
