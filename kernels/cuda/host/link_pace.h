// One direction of a card's link that is to seem slower than it is (link_pace_launch.h): where its clock lies, and the
// launches around a copy.
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

class LinkPace {
public:
    /// Takes 256 bytes of the device's budget; waits for the card once.
    LinkPace(CudaDevice& device, double bytes_per_second);

    /// The place of a stream's moments. Beyond 31 streams of a direction places are shared, and their times less true.
    [[nodiscard]] std::int32_t take_slot();
    /// Around a copy of `bytes` on the stream at `place`, which is then done no earlier than the link allows.
    [[nodiscard]] Status begin(Place place, std::int32_t slot, ErrorText* error) const;
    [[nodiscard]] Status end(Place place, std::int32_t slot, std::size_t bytes, ErrorText* error) const;

private:
    const Module* table_;
    double bytes_per_second_;
    Buffer clock_;
    std::atomic<std::int32_t> n_slots_ = 0;
};

}  // namespace slipstream::cuda
