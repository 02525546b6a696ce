// Copies hidden rows from one device to another: directly if both compute in host memory, else through page-locked host
// memory.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/base/tensor_view.h"
#include "kernels/device.h"

namespace slipstream {

class HiddenStateTransfer {
public:
    /// Prepares transfers between any two of `devices`, which must outlive this object, of up to `bytes` bytes each.
    HiddenStateTransfer(std::span<Device* const> devices, std::size_t bytes);

    /// Copies `rows` [n, cols] of `from` to `out` of the same shape, for work enqueued on `to` from now on. Blocks the
    /// host until work enqueued on `from` has computed the rows.
    void carry(ExecRef from, const ConstTensorView& rows, ExecRef to, const TensorView& out);

private:
    Buffer staging_;  // empty if all devices share host memory
};

}  // namespace slipstream
