// Sums over ranks: devices that each compute a part of one product, each on a host thread of its own.
#pragma once

#include "kernels/base/error.h"
#include "kernels/base/tensor_view.h"
#include "kernels/device.h"

namespace slipstream {

/// A sum that was given up, since another rank has failed.
class CollectiveAborted : public Error {
public:
    using Error::Error;
};

/// What one rank has of them. All ranks make the same calls in the same order.
class Collective {
public:
    virtual ~Collective() = default;
    /// `y` [n_rows, d], F32, of every rank becomes y of rank 0 + y of rank 1 + ..., element by element in this order:
    /// the same bits on all of them, whatever n_rows is (E1). All are of one shape (CHECKed). For work enqueued on
    /// exec.stream from now on; blocks the host until all ranks have called. Throws CollectiveAborted, or IoError where
    /// another rank does not come.
    virtual void all_reduce(ExecRef exec, const TensorView& y) = 0;
    /// Calls of all ranks throw CollectiveAborted: those that wait, and later ones. From any thread.
    virtual void abort() noexcept = 0;
    /// Calls of all ranks are counted anew, and an abort is forgotten. No rank is in a call, and the streams of all are
    /// empty.
    virtual void restart() = 0;
};

}  // namespace slipstream
