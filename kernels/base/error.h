// Typed exceptions for what the environment can do to us: bad files, missing devices, small budgets.
// A message says what was asked, what was found, and what to do, in one line. Bugs use CHECK (check.h) instead;
// expected outcomes (no draft, end of text) are values, never exceptions. Only tools/ catches these.
#pragma once

#include <stdexcept>
#include <string>

namespace slipstream {

/// Root of every error that a user can cause or mend.
class Error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// A file's content is not what its format demands (truncated, out of range, contradictory).
class FormatError : public Error {
public:
    using Error::Error;
};

/// The operating system refused: open, read, write, map.
class IoError : public Error {
public:
    using Error::Error;
};

/// A device's or the host's byte budget does not hold what was asked.
class OutOfBudget : public Error {
public:
    using Error::Error;
};

/// A CUDA call failed, or a named card cannot be used.
class CudaError : public Error {
public:
    using Error::Error;
};

/// Well-formed, but not something this version can serve (named in the message).
class Unsupported : public Error {
public:
    using Error::Error;
};

/// The request itself cannot be served: a prompt longer than the context, a name that leads nowhere.
class RequestError : public Error {
public:
    using Error::Error;
};

}  // namespace slipstream
