// The two kernels around a copy over a link that is slowed down (link_pace_launch.h). One thread, which reads the GPU's
// clock; it takes one of the places for thread blocks of one multiprocessor, and no memory bandwidth.
#include "gpu.cuh"
#include "kernels/cuda/link_pace_launch.h"

namespace slipstream::cuda {

namespace {

__global__ void __launch_bounds__(1) link_pace(LinkPaceLaunch p) {
    if (p.moment == LinkPaceMoment::Reset) {
        for (int i = 0; i < kLinkPaceWords; ++i) p.clock[i] = 0;
        return;
    }
    if (p.moment == LinkPaceMoment::Begin) {
        p.clock[1 + p.stream] = gpu::nanoseconds();
        return;
    }
    const uint64_t began = p.clock[1 + p.stream];
    uint64_t seen = 0;
    uint64_t end = 0;
    uint64_t free_from = 0;
    // Reserves the link for this copy: from the time at which the link becomes free, but not before the copy began. The
    // first swap compares with 0 and so only reads that time, unless nothing was copied yet. A later swap fails if
    // another stream of this direction has reserved the link in between; then this copy queues after that stream's.
    do {
        free_from = seen;
        end = (free_from > began ? free_from : began) + p.nanoseconds;
        seen = gpu::atomic_swap_if(p.clock, free_from, end);
    } while (seen != free_from);
    while (gpu::nanoseconds() < end) {
    }
}

}  // namespace

void launch_link_pace(const LinkPaceLaunch& launch, void* stream) {
    gpu::launch(link_pace, dim3(1), dim3(1), 0, stream, launch);
}

}  // namespace slipstream::cuda
