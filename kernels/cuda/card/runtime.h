// The runtime half of the module's table, on the CUDA runtime that is linked into it (module_api.h says what each
// does).
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>

#include "kernels/cuda/module_api.h"

namespace slipstream::cuda::card {

/// Ok, or the status with the runtime's own words in `error`; the runtime's memory of a recoverable error is cleared.
Status status_of(cudaError_t result, ErrorText* error);
/// Makes `device` the calling thread's.
Status use_device(std::int32_t device, ErrorText* error);
/// Held while memory is taken, locked or given back, for which the driver may wait for all kernels of all cards that
/// reach one another; and while kernels are enqueued that wait on their cards for one another. Between two of those it
/// would wait for good (NVIDIA/nccl, issues 48 and 744).
std::mutex& memory_mutex();

Status count_devices(std::int32_t* n, ErrorText* error);
Status try_kernel(std::int32_t device, ErrorText* error);
Status device_properties(std::int32_t device, DeviceProperties* properties, ErrorText* error);
Status memory_info(std::int32_t device, std::uint64_t* free_bytes, std::uint64_t* total_bytes, ErrorText* error);
Status allocate(std::int32_t device, std::size_t bytes, void** data, ErrorText* error);
Status free(std::int32_t device, void* data, ErrorText* error);
Status allocate_host(std::int32_t device, std::size_t bytes, void** data, ErrorText* error);
Status free_host(std::int32_t device, void* data, ErrorText* error);
Status register_host(std::int32_t device, void* data, std::size_t bytes, ErrorText* error);
Status unregister_host(std::int32_t device, void* data, ErrorText* error);
Status make_stream(std::int32_t device, QueueKind kind, void** stream, ErrorText* error);
Status free_stream(Place place, ErrorText* error);
Status synchronize(Place place, ErrorText* error);
Status copy(Place place, void* dst, const void* src, std::size_t bytes, ErrorText* error);
Status make_event(std::int32_t device, EventKind kind, void** event, ErrorText* error);
Status free_event(void* event, ErrorText* error);
Status record(Place place, void* event, ErrorText* error);
Status wait(Place place, void* event, ErrorText* error);
Status query(void* event, ErrorText* error);
Status await(void* event, ErrorText* error);
Status elapsed(void* begin, void* end, float* milliseconds, ErrorText* error);
Status begin_capture(Place place, ErrorText* error);
Status end_capture(Place place, void** graph, std::int64_t* n_nodes, ErrorText* error);
Status launch_graph(Place place, void* graph, ErrorText* error);
Status free_graph(std::int32_t device, void* graph, ErrorText* error);
Status can_access_peer(std::int32_t device, std::int32_t peer, bool* can, ErrorText* error);

}  // namespace slipstream::cuda::card
