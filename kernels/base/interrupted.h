// How work that takes long is given up: whoever asked for it turns a flag, the work looks at it now and then.
#pragma once

#include <atomic>

#include "kernels/base/error.h"

namespace slipstream {

/// The work was given up, and there is nothing to keep of it.
class Interrupted : public Error {
public:
    Interrupted() : Error("interrupted") {}
};

/// Throws Interrupted where *cancel turned true; null: nobody interrupts.
inline void throw_if_cancelled(const std::atomic<bool>* cancel) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) throw Interrupted();
}

}  // namespace slipstream
