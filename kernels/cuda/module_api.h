// The border of the CUDA module: one extern "C" entry returns a table of functions, and nothing else crosses. Plain
// data, no CUDA header, no C++ library types. A failure is a status and a line of text in the caller's buffer, never an
// exception. The GPU's table (card/module.cu) and the emulation's (tests/cuda_emulation/) have the same functions, and
// CudaDevice runs on either.
//
// Handles are opaque: a stream's handle is what launch functions take as `void* stream`. Functions that concern a
// device name it; a caller must not rely on the device that is current after a call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch_list.h"

namespace slipstream::cuda {

#define SLIPSTREAM_DECLARE_LAUNCH(name, Launch) struct Launch;
SLIPSTREAM_CUDA_LAUNCHES(SLIPSTREAM_DECLARE_LAUNCH)
#undef SLIPSTREAM_DECLARE_LAUNCH
struct PromptProductLaunch;
struct RankPart;

/// Version of the border between program and module, which must have the same version. Raise it with every change of
/// this file, of launch_list.h or of a launch header.
inline constexpr std::uint32_t kModuleVersion = 9;
inline constexpr char kModuleFile[] = "libslipstream_cuda.so";
inline constexpr char kModuleEntry[] = "slipstream_cuda_module";
/// Least compute capability (80 for 8.0) of a GPU that can be used: older ones have no bfloat16 mma and no asynchronous
/// copies into shared memory.
inline constexpr std::int32_t kLeastSm = 80;

/// Result of a function of the table.
enum class Status : std::int32_t {
    Ok,
    NotReady,      // a query: the work is not done yet
    NoDriver,      // the machine has no driver
    DriverTooOld,  // too old for the runtime that the module was built with
    NoDevice,      // there is a driver, but it shows no GPU to this program
    OutOfMemory,   // no memory left: of the device, or host memory that can be locked
    Failed,
    NoImage,       // the module has no code that the GPU runs
    NotInstalled,  // a library that is opened by name is not installed
};

/// Text of an error, in the caller's buffer.
struct ErrorText {
    char text[512];  // ends with 0; set if the status is neither Ok nor NotReady
};

/// Properties of a GPU.
struct DeviceProperties {
    char name[256];                        // "NVIDIA GeForce RTX 4090"
    std::int32_t sm;                       // compute capability: 89 for 8.9
    std::int32_t n_multiprocessors;        //
    std::int32_t driver_version;           // CUDA version that the driver supports: 13000 for 13.0
    std::int32_t runtime_version;          // CUDA version that the module was built with
    std::uint64_t memory_bytes;            // memory of the GPU
    std::uint64_t l2_bytes;                //
    std::uint64_t shared_bytes_per_block;  // most shared memory that a thread block may ask for
    std::uint64_t allocation_bytes;        // unit to which the driver rounds allocations up
    double memory_bytes_per_second;        // peak rate, from clock and bus width; 0: unknown
};

/// Kind of a stream: copy streams have priority.
enum class QueueKind : std::int32_t { Compute, Copy };
enum class EventKind : std::int32_t {
    Order,   // an event for waits and queries; cheap
    Timing,  // an event for elapsed() as well
};

/// A stream of a device: where work is enqueued.
struct Place {
    std::int32_t device;
    void* stream;
};

/// The table of functions. A function that fails sets *error; its outputs then mean nothing.
struct Module {
    std::uint32_t version;      // kModuleVersion
    std::uint32_t table_bytes;  // kTableBytes: mixes the sizes of this table and of what its functions take
    // What the kernels were compiled for, as in CMAKE_CUDA_ARCHITECTURES: "80-real,120"; plain numbers include PTX,
    // which newer GPUs compile for themselves. Empty: not known.
    const char* architectures;

    Status (*count_devices)(std::int32_t* n, ErrorText* error);
    // Runs a kernel that does nothing. Returns NoImage if the module has no code for the GPU. Blocks the host.
    Status (*try_kernel)(std::int32_t device, ErrorText* error);
    Status (*device_properties)(std::int32_t device, DeviceProperties* properties, ErrorText* error);

    // Device memory: memory_info returns how many bytes are free and how many there are; allocate returns memory
    // aligned to 256 bytes, whose contents are undefined at first.
    Status (*memory_info)(std::int32_t device, std::uint64_t* free_bytes, std::uint64_t* total_bytes, ErrorText* error);
    Status (*allocate)(std::int32_t device, std::size_t bytes, void** data, ErrorText* error);
    Status (*free)(std::int32_t device, void* data, ErrorText* error);
    // Pinned (page-locked) host memory that every device can access: allocated here, or existing memory, of whole
    // pages.
    Status (*allocate_host)(std::int32_t device, std::size_t bytes, void** data, ErrorText* error);
    Status (*free_host)(std::int32_t device, void* data, ErrorText* error);
    Status (*register_host)(std::int32_t device, void* data, std::size_t bytes, ErrorText* error);
    Status (*unregister_host)(std::int32_t device, void* data, ErrorText* error);

    Status (*make_stream)(std::int32_t device, QueueKind kind, void** stream, ErrorText* error);
    Status (*free_stream)(Place place, ErrorText* error);  // work that is enqueued is still done
    Status (*synchronize)(Place place, ErrorText* error);
    // Copies between host and device memory in any direction, in stream order. `src` and `dst` must stay alive until
    // the stream has passed the copy.
    Status (*copy)(Place place, void* dst, const void* src, std::size_t bytes, ErrorText* error);

    Status (*make_event)(std::int32_t device, EventKind kind, void** event, ErrorText* error);
    Status (*free_event)(void* event, ErrorText* error);
    Status (*record)(Place place, void* event, ErrorText* error);
    Status (*wait)(Place place, void* event, ErrorText* error);  // later work of `place` waits for the latest record
    Status (*query)(void* event, ErrorText* error);              // returns Ok if the event is done, else NotReady
    Status (*await)(void* event, ErrorText* error);              // blocks the host until the event is done
    Status (*elapsed)(void* begin, void* end, float* milliseconds, ErrorText* error);

    // Graphs. From begin to end, work of the stream is recorded instead of done. Launches do it, in stream order, with
    // what memory holds then. In between only kernels, and copies between device and pinned memory, may be enqueued on
    // that stream: any other call fails, and so does the end. The end leaves the stream as it was before, also if it
    // fails. A graph may be freed while launches of it are still running.
    Status (*begin_capture)(Place place, ErrorText* error);
    Status (*end_capture)(Place place, void** graph, std::int64_t* n_nodes, ErrorText* error);
    Status (*launch_graph)(Place place, void* graph, ErrorText* error);
    Status (*free_graph)(std::int32_t device, void* graph, ErrorText* error);
    // cuBLASLt, for prompts. Loaded by the first call, so that programs that use no GPU never load it. Returns Failed,
    // with the reason, if it is not installed or has another major version than the module was built with.
    Status (*blas_version)(std::int64_t* version, ErrorText* error);  // 130100 for 13.1.0
    Status (*make_blas)(std::int32_t device, void** blas, ErrorText* error);
    Status (*free_blas)(std::int32_t device, void* blas, ErrorText* error);
    Status (*prompt_product)(Place place, const PromptProductLaunch* launch, ErrorText* error);

    // Whether kernels of `device` can read and write the memory of `peer`.
    Status (*can_access_peer)(std::int32_t device, std::int32_t peer, bool* can, ErrorText* error);
    // NCCL, for sums over GPUs. Loaded by the first call. Returns NotInstalled if it is not installed, Failed if it
    // does not open. Errors are described by the name of the failed call and NCCL's own text.
    Status (*nccl_version)(std::int64_t* version, ErrorText* error);  // 22809 for 2.28.9
    // One communicator for each of n_ranks different devices, in the order of the ranks; all or none. Blocks the host.
    Status (*make_communicators)(std::int32_t n_ranks, const std::int32_t* devices, void** communicators,
                                 ErrorText* error);
    // free_communicator: nothing may be running. abort_communicator: ends whatever is running, which leaves undefined
    // results. Both block the host.
    Status (*free_communicator)(std::int32_t device, void* communicator, ErrorText* error);
    Status (*abort_communicator)(std::int32_t device, void* communicator, ErrorText* error);
    // These enqueue for all ranks at once, n_floats floats of each rank. sum_parts: `to` of every rank becomes the sum;
    // with more than two ranks the library chooses the order of the terms. gather_parts: `to` becomes the parts of all
    // ranks, in the order of the ranks. Any thread may call them, one at a time; meanwhile no thread allocates or frees
    // memory. *failed is the rank that failed; -1: not known.
    Status (*sum_parts)(std::int32_t n_ranks, const RankPart* parts, std::size_t n_floats, std::int32_t* failed,
                        ErrorText* error);
    Status (*gather_parts)(std::int32_t n_ranks, const RankPart* parts, std::size_t n_floats, std::int32_t* failed,
                           ErrorText* error);

    // Kernels (launch_list.h). Parameters are copied by the call; what they point at is device memory.
#define SLIPSTREAM_LAUNCH_FUNCTION(name, Launch) Status (*name)(Place place, const Launch* launch, ErrorText* error);
    SLIPSTREAM_CUDA_LAUNCHES(SLIPSTREAM_LAUNCH_FUNCTION)
#undef SLIPSTREAM_LAUNCH_FUNCTION
};

/// Type of the entry: returns the table, which is valid as long as the library is loaded.
using ModuleEntry = const Module* (*)();

}  // namespace slipstream::cuda
