// The errors that have exit codes of their own. UsageError, a mistake in how the program was called: 2. Interrupted,
// thrown by work that a signal ended: 128 plus the number of the signal. All other errors: 1.
#pragma once

#include "kernels/base/error.h"
#include "kernels/base/interrupted.h"

namespace slipstream::tools {

/// Thrown if an option, an environment variable or a configuration value cannot be used; the message names the option,
/// the variable or the value. Exit code 2.
class UsageError : public Error {
public:
    using Error::Error;
};

}  // namespace slipstream::tools
