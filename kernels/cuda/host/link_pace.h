// Slows down one direction of a GPU's link (link_pace_launch.h): holds its clock in device memory, and launches the
// kernels before and after each copy.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/module_api.h"
#include "kernels/device.h"

namespace slipstream {
class CudaDevice;
}

namespace slipstream::cuda {

/// One direction of the link; all its copy streams share it.
class LinkPace {
public:
    /// Takes 256 bytes of the device's memory budget, and blocks the host once. Throws CudaError, OutOfBudget. `device`
    /// must outlive this object.
    LinkPace(CudaDevice& device, double bytes_per_second);

    /// Returns a slot for the begin times of a stream's copies. With more than 31 streams in a direction, slots are
    /// shared and the times are less accurate.
    [[nodiscard]] std::int32_t take_slot();
    /// These enqueue the kernels before (begin) and after (end) a copy of `bytes` on the stream at `place`, so that the
    /// copy ends no earlier than the slower link allows. `slot`: the stream's take_slot(). They return the status of
    /// the launch.
    [[nodiscard]] Status begin(Place place, std::int32_t slot, ErrorText* error) const;
    [[nodiscard]] Status end(Place place, std::int32_t slot, std::size_t bytes, ErrorText* error) const;

private:
    const Module* table_;
    double bytes_per_second_;
    Buffer clock_;
    std::atomic<std::int32_t> n_slots_ = 0;
};

}  // namespace slipstream::cuda
