// The border of the CUDA module: one extern "C" entry hands over a table of functions, and nothing else crosses. Plain
// data, no CUDA header, no C++ library types; a failure is a status and a line of text in the caller's buffer, never an
// exception. The card's table (card/module.cu) and the emulation's (tests/cuda_emulation/) are filled alike, and
// CudaDevice runs on either.
//
// Handles are opaque: a stream's is what launch functions take as `void* stream`. Functions that concern a device
// name it; none leaves a device current that its caller counts on.
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

/// Raised with every change of this file, of launch_list.h or of a launch header.
inline constexpr std::uint32_t kModuleVersion = 6;
inline constexpr char kModuleFile[] = "libslipstream_cuda.so";
inline constexpr char kModuleEntry[] = "slipstream_cuda_module";
/// Cards older than this are not served: no bfloat16 mma, no asynchronous copies into shared memory.
inline constexpr std::int32_t kLeastSm = 80;

enum class Status : std::int32_t {
    Ok,
    NotReady,      // a query: the work is not done yet
    NoDriver,      // the machine has none
    DriverTooOld,  // for the runtime that the module was built with
    NoDevice,      // a driver, and no card that it shows to this program
    OutOfMemory,   // of the device, or of lockable host memory
    Failed,
    NoImage,       // no code in the module that the card runs
    NotInstalled,  // a library that is opened by name
};

struct ErrorText {
    char text[512];  // ends with 0; set where the status is neither Ok nor NotReady
};

struct DeviceProperties {
    char name[256];                        // "NVIDIA GeForce RTX 4090"
    std::int32_t sm;                       // compute capability, 89 for 8.9
    std::int32_t n_multiprocessors;        //
    std::int32_t driver_version;           // CUDA version that the driver serves, 13000 for 13.0
    std::int32_t runtime_version;          // that the module was built with
    std::uint64_t memory_bytes;            // of the card
    std::uint64_t l2_bytes;                //
    std::uint64_t shared_bytes_per_block;  // most that a kernel may ask for
    std::uint64_t allocation_bytes;        // an allocation takes a multiple of it
    double memory_bytes_per_second;        // peak, from clock and bus width; 0: unknown
};

enum class QueueKind : std::int32_t { Compute, Copy };
enum class EventKind : std::int32_t {
    Order,   // for waits and queries; cheap
    Timing,  // elapsed() may be asked for
};

/// Where work is enqueued.
struct Place {
    std::int32_t device;
    void* stream;
};

struct Module {
    std::uint32_t version;      // kModuleVersion
    std::uint32_t table_bytes;  // kTableBytes: sizes of this and of what its functions take
    // What the kernels were compiled for, as CMAKE_CUDA_ARCHITECTURES says it: "80-real,120", plain numbers with PTX
    // that newer cards compile for themselves. Empty: not known.
    const char* architectures;

    Status (*count_devices)(std::int32_t* n, ErrorText* error);
    // Runs a kernel that does nothing: NoImage where the module has no code for the card. Blocks the host.
    Status (*try_kernel)(std::int32_t device, ErrorText* error);
    Status (*device_properties)(std::int32_t device, DeviceProperties* properties, ErrorText* error);

    // Device memory, aligned to 256 bytes; undefined contents.
    Status (*memory_info)(std::int32_t device, std::uint64_t* free_bytes, std::uint64_t* total_bytes, ErrorText* error);
    Status (*allocate)(std::int32_t device, std::size_t bytes, void** data, ErrorText* error);
    Status (*free)(std::int32_t device, void* data, ErrorText* error);
    // Page-locked host memory, reached by every device; and the same for memory that is there already, whole pages.
    Status (*allocate_host)(std::int32_t device, std::size_t bytes, void** data, ErrorText* error);
    Status (*free_host)(std::int32_t device, void* data, ErrorText* error);
    Status (*register_host)(std::int32_t device, void* data, std::size_t bytes, ErrorText* error);
    Status (*unregister_host)(std::int32_t device, void* data, ErrorText* error);

    Status (*make_stream)(std::int32_t device, QueueKind kind, void** stream, ErrorText* error);
    Status (*free_stream)(Place place, ErrorText* error);  // what is enqueued is still done
    Status (*synchronize)(Place place, ErrorText* error);
    // Host or device memory on either side; in stream order, and done when the stream has passed it.
    Status (*copy)(Place place, void* dst, const void* src, std::size_t bytes, ErrorText* error);

    Status (*make_event)(std::int32_t device, EventKind kind, void** event, ErrorText* error);
    Status (*free_event)(void* event, ErrorText* error);
    Status (*record)(Place place, void* event, ErrorText* error);
    Status (*wait)(Place place, void* event, ErrorText* error);  // for the latest record
    Status (*query)(void* event, ErrorText* error);              // Ok or NotReady
    Status (*await)(void* event, ErrorText* error);              // blocks the host until it is done
    Status (*elapsed)(void* begin, void* end, float* milliseconds, ErrorText* error);

    // Graphs: from begin to end the stream's work is kept instead of done; launches do it, in stream order, reading
    // what memory holds then. In between nothing else may be asked for than kernels and copies on that stream between
    // device and page-locked memory: whatever else fails, and so does the end. The end leaves the stream as it was
    // before, also where it fails. A graph may be freed while launches of it are under way.
    Status (*begin_capture)(Place place, ErrorText* error);
    Status (*end_capture)(Place place, void** graph, std::int64_t* n_nodes, ErrorText* error);
    Status (*launch_graph)(Place place, void* graph, ErrorText* error);
    Status (*free_graph)(std::int32_t device, void* graph, ErrorText* error);
    // cuBLASLt, for prompts. Loaded by the first call, so that who uses no card never loads it. Failed, with the
    // reason, where it is not there or is of another major version than the module was built with.
    Status (*blas_version)(std::int64_t* version, ErrorText* error);  // 130100 for 13.1.0
    Status (*make_blas)(std::int32_t device, void** blas, ErrorText* error);
    Status (*free_blas)(std::int32_t device, void* blas, ErrorText* error);
    Status (*prompt_product)(Place place, const PromptProductLaunch* launch, ErrorText* error);

    // Whether `device` reads and writes the memory of `peer` by itself.
    Status (*can_access_peer)(std::int32_t device, std::int32_t peer, bool* can, ErrorText* error);
    // NCCL, for sums over cards. Loaded by the first call; NotInstalled where it is not there, Failed where it does not
    // open. What fails is said by the name of its call and in its own words.
    Status (*nccl_version)(std::int64_t* version, ErrorText* error);  // 22809 for 2.28.9
    // One for each of n_ranks different devices, in the order of the ranks; all or none. Blocks the host.
    Status (*make_communicators)(std::int32_t n_ranks, const std::int32_t* devices, void** communicators,
                                 ErrorText* error);
    // With nothing under way; and whatever is, which then ends and leaves anything behind. Block the host.
    Status (*free_communicator)(std::int32_t device, void* communicator, ErrorText* error);
    Status (*abort_communicator)(std::int32_t device, void* communicator, ErrorText* error);
    // Enqueue for all ranks at once: of n_floats of each, `to` of all becomes the sum, of more than two parts in
    // an order of the library's own; or the parts of all, one behind the other. From any thread, one at a time;
    // none takes or gives back memory meanwhile. `failed` is the rank where it failed; -1: not known.
    Status (*sum_parts)(std::int32_t n_ranks, const RankPart* parts, std::size_t n_floats, std::int32_t* failed,
                        ErrorText* error);
    Status (*gather_parts)(std::int32_t n_ranks, const RankPart* parts, std::size_t n_floats, std::int32_t* failed,
                           ErrorText* error);

    // Kernels (launch_list.h). Parameters are copied by the call; what they point at is device memory.
#define SLIPSTREAM_LAUNCH_FUNCTION(name, Launch) Status (*name)(Place place, const Launch* launch, ErrorText* error);
    SLIPSTREAM_CUDA_LAUNCHES(SLIPSTREAM_LAUNCH_FUNCTION)
#undef SLIPSTREAM_LAUNCH_FUNCTION
};

/// The entry's type: the table, valid as long as the library is loaded.
using ModuleEntry = const Module* (*)();

}  // namespace slipstream::cuda
