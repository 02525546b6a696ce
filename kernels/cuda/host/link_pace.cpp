#include "kernels/cuda/host/link_pace.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/host/cuda_device.h"
#include "kernels/cuda/link_pace_launch.h"

namespace slipstream::cuda {

namespace {

// Longest time in seconds that one kernel waits. A GPU that also drives a display ends kernels that run for 2 s.
constexpr double kMostSeconds = 0.25;

std::uint64_t* words(const Buffer& clock) {
    return reinterpret_cast<std::uint64_t*>(clock.data());
}

}  // namespace

LinkPace::LinkPace(CudaDevice& device, double bytes_per_second)
    : table_(&device.table()),
      bytes_per_second_(bytes_per_second),
      clock_(device.allocate(kLinkPaceWords * sizeof(std::uint64_t), MemoryTag::Workspace, "the pace of the link")) {
    Place place{.device = device.ordinal(), .stream = nullptr};
    ErrorText error{};
    device.check(table_->make_stream(place.device, QueueKind::Copy, &place.stream, &error), error, "a stream");
    const LinkPaceLaunch reset{.clock = words(clock_)};
    Status status = table_->link_pace(place, &reset, &error);
    if (status == Status::Ok) status = table_->synchronize(place, &error);
    ErrorText ignored{};
    table_->free_stream(place, &ignored);
    device.check(status, error, "the pace of the link");
}

std::int32_t LinkPace::take_slot() {
    return n_slots_.fetch_add(1) % (kLinkPaceWords - 1);
}

Status LinkPace::begin(Place place, std::int32_t slot, ErrorText* error) const {
    const LinkPaceLaunch launch{.moment = LinkPaceMoment::Begin, .stream = slot, .clock = words(clock_)};
    return table_->link_pace(place, &launch, error);
}

Status LinkPace::end(Place place, std::int32_t slot, std::size_t bytes, ErrorText* error) const {
    const double seconds = static_cast<double>(bytes) / bytes_per_second_;
    const auto n = static_cast<std::int64_t>(std::max(1.0, std::ceil(seconds / kMostSeconds)));
    const LinkPaceLaunch launch{.moment = LinkPaceMoment::End,
                                .stream = slot,
                                .clock = words(clock_),
                                .nanoseconds = static_cast<std::uint64_t>(1e9 * seconds / static_cast<double>(n))};
    Status status = Status::Ok;
    for (std::int64_t i = 0; i < n && status == Status::Ok; ++i) status = table_->link_pace(place, &launch, error);
    return status;
}

}  // namespace slipstream::cuda
