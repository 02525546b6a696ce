// The functions of the module's table that wrap the CUDA runtime, which is linked into the module (what each does:
// module_api.h).
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>

#include "kernels/cuda/module_api.h"

namespace slipstream::cuda::card {

/// Returns Ok, or the status of `result` with the runtime's own text in *error. Clears the error that the runtime
/// remembers, if it is recoverable.
Status status_of(cudaError_t result, ErrorText* error);
/// Makes `device` the current device of the calling thread.
Status use_device(std::int32_t device, ErrorText* error);
/// Returns the mutex to hold while memory is allocated, locked or freed, for which the driver may wait for all kernels
/// of all GPUs that can access each other; and while kernels are enqueued that wait on their GPUs for one another. An
/// allocation between two of these would wait for ever (NVIDIA/nccl, issues 48 and 744).
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
