// A number that differs between tables of different builds, beside the version that is raised by hand: it mixes the
// sizes of all types that cross the border.
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

/// Module::table_bytes of this build. The module and the program must have the same value.
inline constexpr std::uint32_t kTableBytes = table_detail::mixed();

}  // namespace slipstream::cuda
