// Typed exceptions for failures that the environment causes: bad files, missing devices, small budgets. A message
// states in one line what was requested, what was found, and what to do. Bugs use CHECK (check.h) instead; expected
// outcomes (no draft tokens, end of text) are return values, never exceptions.
//
// Only tools/ reports these errors to the user. Other folders catch them in order to add context, to pass them to
// another thread, or to continue in a way that was planned for (a smaller request, a damaged table).
#pragma once

#include <stdexcept>
#include <string>

namespace slipstream {

/// Base class of all errors that a user can cause or fix.
class Error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// The content of a file violates its format (truncated, out of range, contradictory).
class FormatError : public Error {
public:
    using Error::Error;
};

/// The operating system refused to open, read, write or map a file.
class IoError : public Error {
public:
    using Error::Error;
};

/// The request exceeds the byte budget of a device or of the host, or the memory or threads that the system has left.
class OutOfBudget : public Error {
public:
    using Error::Error;
};

/// A CUDA call failed, or a GPU that the user named cannot be used.
class CudaError : public Error {
public:
    using Error::Error;
};

/// The input is well-formed, but this version does not support something in it, which the message names.
class Unsupported : public Error {
public:
    using Error::Error;
};

/// The request itself cannot be served: for example, a prompt longer than the context, or an unknown name.
class RequestError : public Error {
public:
    using Error::Error;
};

}  // namespace slipstream
