// What stands for NCCL on the emulated machine: sums and gatherings that are done when all ranks' streams have come to
// them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/sums_launch.h"

namespace slipstream::emulation {

/// As kernels/cuda/module_api.h has them. Parts are added in an order that follows from their number and size, as the
/// library's does, and never begins with the first: bits that tell who added.
cuda::Status can_access_peer(std::int32_t device, std::int32_t peer, bool* can, cuda::ErrorText* error);
cuda::Status nccl_version(std::int64_t* version, cuda::ErrorText* error);
cuda::Status make_communicators(std::int32_t n_ranks, const std::int32_t* devices, void** communicators,
                                cuda::ErrorText* error);
cuda::Status free_communicator(std::int32_t device, void* communicator, cuda::ErrorText* error);
cuda::Status abort_communicator(std::int32_t device, void* communicator, cuda::ErrorText* error);
cuda::Status sum_parts(std::int32_t n_ranks, const cuda::RankPart* parts, std::size_t n_floats, std::int32_t* failed,
                       cuda::ErrorText* error);
cuda::Status gather_parts(std::int32_t n_ranks, const cuda::RankPart* parts, std::size_t n_floats, std::int32_t* failed,
                          cuda::ErrorText* error);

}  // namespace slipstream::emulation
