// The way of hidden rows from one device to another: a copy where both compute in the host's memory, else out into
// page-locked memory of the host and in from there.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/base/tensor_view.h"
#include "kernels/device.h"

namespace slipstream {

class HiddenStateTransfer {
public:
    /// Between any two of `devices`, which outlive this, up to `bytes` at once.
    HiddenStateTransfer(std::span<Device* const> devices, std::size_t bytes);

    /// `rows` [n, cols], which `from` makes, to `out` of the same shape for work enqueued on `to` from now on. Blocks
    /// the host until they are made.
    void carry(ExecRef from, const ConstTensorView& rows, ExecRef to, const TensorView& out);

private:
    Buffer staging_;  // none where the host's memory is everybody's
};

}  // namespace slipstream
