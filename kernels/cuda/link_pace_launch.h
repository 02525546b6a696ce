// Emulates a slower link (--link-gib-s). A copy occupies the link for bytes / rate, from the later of two times: when
// the link becomes free, and when the copy begins. Two kernels of one thread run before and after the copy on its
// stream: the first stores the time at which the copy began, the second waits on the GPU's clock until the copy's time
// is over. All streams of a direction share the time at which the link becomes free. Plain data.
#pragma once

#include <cstdint>

namespace slipstream::cuda {

/// 64-bit words of the clock of one link direction, in device memory: [0] the time at which the link becomes free, [1 +
/// s] the time at which the latest copy of stream s began, both in nanoseconds of the GPU's clock. So there is room for
/// 31 streams.
inline constexpr std::int32_t kLinkPaceWords = 32;

/// Which of the kernels a launch runs.
enum class LinkPaceMoment : std::int32_t {
    Reset,  // launch before all others: the link becomes free
    Begin,  // before a copy, on its stream
    End,    // after the copy, on its stream
};

struct LinkPaceLaunch {
    LinkPaceMoment moment = LinkPaceMoment::Reset;
    std::int32_t stream = 0;         // number of the stream in its direction, less than kLinkPaceWords - 1
    std::uint64_t* clock = nullptr;  // [kLinkPaceWords], device memory
    std::uint64_t nanoseconds = 0;   // End: time for which the copy occupies the link. A GPU that also drives a display
                                     // ends kernels after 2 s, so longer times need several launches
};
/// Enqueues the kernel of `launch` on `stream`.
void launch_link_pace(const LinkPaceLaunch& launch, void* stream);

}  // namespace slipstream::cuda
