// A number that differs between tables of different builds, beside the version that is raised by hand: it mixes the
// sizes of all types that cross the border.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/elementwise_launch.h"
#include "kernels/cuda/kv_launch.h"
#include "kernels/cuda/kv_view_launch.h"
#include "kernels/cuda/link_pace_launch.h"
#include "kernels/cuda/matmul/matmul_launch.h"
#include "kernels/cuda/matmul/prompt_launch.h"
#include "kernels/cuda/module_api.h"
#include "kernels/cuda/sampling_launch.h"
#include "kernels/cuda/sums_launch.h"

namespace slipstream::cuda {

namespace table_detail {
constexpr std::uint32_t mixed() {
    constexpr std::size_t kSizes[] = {sizeof(Module),
                                      sizeof(DeviceProperties),
                                      sizeof(ErrorText),
                                      sizeof(Place),
                                      sizeof(AddLaunch),
                                      sizeof(ArgmaxLaunch),
                                      sizeof(AttentionLaunch),
                                      sizeof(GumbelLaunch),
                                      sizeof(KvCommitLaunch),
                                      sizeof(KvGatherLaunch),
                                      sizeof(KvScoreLaunch),
                                      sizeof(KvWriteLaunch),
                                      sizeof(LinkPaceLaunch),
                                      sizeof(LogitSumLaunch),
                                      sizeof(MatmulLaunch),
                                      sizeof(MoveRowsLaunch),
                                      sizeof(PromptActivationsLaunch),
                                      sizeof(PromptProductLaunch),
                                      sizeof(PromptStoreLaunch),
                                      sizeof(PromptWeightsLaunch),
                                      sizeof(RankPart),
                                      sizeof(RmsNormLaunch),
                                      sizeof(RopeLaunch),
                                      sizeof(RotateWriteLaunch),
                                      sizeof(SwigluLaunch),
                                      sizeof(TopKLaunch)};
    std::uint32_t mix = 0;
    for (const std::size_t size : kSizes) mix = mix * 31 + static_cast<std::uint32_t>(size);
    return mix;
}
}  // namespace table_detail

/// Module::table_bytes of this build. The module and the program must have the same value.
inline constexpr std::uint32_t kTableBytes = table_detail::mixed();

}  // namespace slipstream::cuda
