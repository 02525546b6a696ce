// What tells tables of different builds apart beside the version that is raised by hand: the sizes of all that crosses
// the border.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launches.h"
#include "kernels/cuda/module_api.h"
#include "kernels/cuda/sums_launch.h"

namespace slipstream::cuda {

namespace table_detail {
constexpr std::uint32_t mixed() {
#define SLIPSTREAM_LAUNCH_BYTES(name, Launch) sizeof(Launch),
    constexpr std::size_t kSizes[] = {sizeof(Module),
                                      sizeof(DeviceProperties),
                                      sizeof(ErrorText),
                                      sizeof(Place),
                                      sizeof(RankPart),
                                      sizeof(PromptProductLaunch),
                                      SLIPSTREAM_CUDA_LAUNCHES(SLIPSTREAM_LAUNCH_BYTES)};
#undef SLIPSTREAM_LAUNCH_BYTES
    std::uint32_t mix = 0;
    for (const std::size_t size : kSizes) mix = mix * 31 + static_cast<std::uint32_t>(size);
    return mix;
}
}  // namespace table_detail

/// Module::table_bytes of this build.
inline constexpr std::uint32_t kTableBytes = table_detail::mixed();

}  // namespace slipstream::cuda
