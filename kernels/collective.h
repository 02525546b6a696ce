// Sums over ranks. Each rank is a device, driven by its own host thread, that computes a part of one product.
#pragma once

#include "kernels/base/error.h"
#include "kernels/base/tensor_view.h"
#include "kernels/device.h"

namespace slipstream {

/// Thrown by a sum that was abandoned because another rank failed.
class CollectiveAborted : public Error {
public:
    using Error::Error;
};

/// One rank's access to the sums. All ranks must make the same calls in the same order.
class Collective {
public:
    virtual ~Collective() = default;
    /// Replaces `y` [n_rows, d], F32, of every rank by y of rank 0 + y of rank 1 + ..., added element by element in
    /// this order: the same bits on all ranks, whatever n_rows is (batch invariance, E1). `y` must have the same shape
    /// on all ranks (CHECKed). The sum is ready for work enqueued on exec.stream from now on. Blocks the host until all
    /// ranks have called. Throws CollectiveAborted after abort(), and IoError if another rank does not call in time.
    virtual void all_reduce(ExecRef exec, const TensorView& y) = 0;
    /// Makes calls of all ranks throw CollectiveAborted, those that wait and later ones. May be called by any thread.
    virtual void abort() noexcept = 0;
    /// Starts counting the calls of all ranks again and cancels an abort(). No rank may be in a call, and the streams
    /// of all ranks must be empty.
    virtual void restart() = 0;
};

}  // namespace slipstream
