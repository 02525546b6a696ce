// The message that a call throws, for tests of messages.
#pragma once

#include <string>

#include "kernels/base/error.h"

namespace slipstream {

/// What `call` throws as E (by default any of ours), or "nothing thrown". Other exceptions pass through and fail the
/// test.
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
