// A mistake in how the program was called, exit code 2, unlike every other error; and the end of work that a signal
// interrupted, exit code 128 and its number (Interrupted).
#pragma once

#include "kernels/base/error.h"
#include "kernels/base/interrupted.h"

namespace slipstream::tools {

/// An option, an environment variable or a configuration value that cannot be used as it stands; the message names it.
class UsageError : public Error {
public:
    using Error::Error;
};

}  // namespace slipstream::tools
