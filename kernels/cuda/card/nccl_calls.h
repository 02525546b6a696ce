// NCCL for the module's function table (module_api.h, sums_launch.h). It is loaded at run time, by name: the module can
// be built without it, and does not load it if no sums are computed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/sums_launch.h"

namespace slipstream::cuda::card {

Status nccl_version(std::int64_t* version, ErrorText* error);
Status make_communicators(std::int32_t n_ranks, const std::int32_t* devices, void** communicators, ErrorText* error);
Status free_communicator(std::int32_t device, void* communicator, ErrorText* error);
Status abort_communicator(std::int32_t device, void* communicator, ErrorText* error);
Status sum_parts(std::int32_t n_ranks, const RankPart* parts, std::size_t n_floats, std::int32_t* failed,
                 ErrorText* error);
Status gather_parts(std::int32_t n_ranks, const RankPart* parts, std::size_t n_floats, std::int32_t* failed,
                    ErrorText* error);

}  // namespace slipstream::cuda::card
