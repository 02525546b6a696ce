#include "runtime/ranks/hidden_state_transfer.h"

#include "kernels/base/check.h"

namespace slipstream {

HiddenStateTransfer::HiddenStateTransfer(std::span<Device* const> devices, std::size_t bytes) {
    for (Device* device : devices) {
        if (device->shares_host_memory()) continue;
        staging_ = device->allocate_host(bytes, MemoryTag::Activations, "hidden rows between devices");
        return;
    }
}

// One staging buffer is enough: rows go from rank to rank, so the rank that writes it next is the one that has read it.
void HiddenStateTransfer::carry(ExecRef from, const ConstTensorView& rows, ExecRef to, const TensorView& out) {
    const std::size_t bytes = rows.rows() * rows.row_stride_bytes;
    CHECK(out.rows() == rows.rows() && out.row_stride_bytes == rows.row_stride_bytes);
    if (from.device.shares_host_memory() && to.device.shares_host_memory()) {
        from.stream.synchronize();
        to.stream.copy(out.data, rows.data, bytes);
        return;
    }
    CHECK(bytes <= staging_.size_bytes(), "{} bytes of hidden rows, room for {}", bytes, staging_.size_bytes());
    from.stream.copy(staging_.data(), rows.data, bytes);
    from.stream.synchronize();
    to.stream.copy(out.data, staging_.data(), bytes);
}

}  // namespace slipstream
