// A mistake in how the program was called: exit code 2, unlike every other error.
#pragma once

#include "kernels/base/error.h"

namespace slipstream::tools {

/// An option, an environment variable or a configuration value that cannot be used as it stands; the message names it.
class UsageError : public Error {
public:
    using Error::Error;
};

/// SIGINT or SIGTERM arrived where there is nothing to keep. Ends in exit code 130 or 143, without a message.
class Interrupted : public Error {
public:
    Interrupted() : Error("interrupted") {}
};

}  // namespace slipstream::tools
