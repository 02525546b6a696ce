// Cancellation: the caller sets a flag that the work polls.
#pragma once

#include <atomic>

#include "kernels/base/error.h"

namespace slipstream {

/// Thrown by work that was cancelled and has no result to keep.
class Interrupted : public Error {
public:
    Interrupted() : Error("interrupted") {}
};

/// Throws Interrupted if *cancel is true. If `cancel` is null, the work cannot be cancelled.
inline void throw_if_cancelled(const std::atomic<bool>* cancel) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) throw Interrupted();
}

}  // namespace slipstream
