// A link that is to seem slower than it is (--link-gib-s): each copy holds it for bytes / rate, from the later of two
// moments: the link is free, the copy began. Two kernels of one thread stand around the copy on its stream: the first
// writes down when it began, the second waits on the card's clock until its time is over. All streams of a direction
// share the moment at which the link is free. Plain data.
#pragma once

#include <cstdint>

namespace slipstream::cuda {

/// Words of a direction's clock in device memory: [0] when the link is free, [1 + s] when the copy of stream s began;
/// nanoseconds of the card's clock.
inline constexpr std::int32_t kLinkPaceWords = 32;

enum class LinkPaceMoment : std::int32_t {
    Reset,  // before all others: the link is free
    Begin,  // in front of a copy
    End,    // behind it
};

struct LinkPaceLaunch {
    LinkPaceMoment moment = LinkPaceMoment::Reset;
    std::int32_t stream = 0;         // of the direction's, below kLinkPaceWords - 1
    std::uint64_t* clock = nullptr;  // [kLinkPaceWords]
    std::uint64_t nanoseconds = 0;   // End: that the copy holds the link. A card that also shows a desktop ends kernels
                                     // after 2 s: longer times are several launches
};
void launch_link_pace(const LinkPaceLaunch& launch, void* stream);

}  // namespace slipstream::cuda
