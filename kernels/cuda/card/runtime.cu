// Every call goes through status_of(), so that no error is lost. The driver's own version distinguishes a machine
// without a driver from one whose driver is too old: the runtime returns the same error for both (35, or 34 if only the
// toolkit's stub is there), and leaves its arguments unchanged.
#include "kernels/cuda/card/runtime.h"

#include <cstdio>
#include <cstring>

namespace slipstream::cuda::card {

namespace {

Status kind_of(cudaError_t result) {
    switch (result) {
        case cudaSuccess:
            return Status::Ok;
        case cudaErrorNotReady:
            return Status::NotReady;
        case cudaErrorMemoryAllocation:
            return Status::OutOfMemory;
        case cudaErrorNoDevice:
            return Status::NoDevice;
        case cudaErrorStubLibrary:
            return Status::NoDriver;
        case cudaErrorInsufficientDriver: {
            int version = 0;
            return cudaDriverGetVersion(&version) == cudaSuccess && version > 0 ? Status::DriverTooOld
                                                                                : Status::NoDriver;
        }
        case cudaErrorNoKernelImageForDevice:
        case cudaErrorUnsupportedPtxVersion:
        case cudaErrorJitCompilerNotFound:
            return Status::NoImage;
        default:
            return Status::Failed;
    }
}

__global__ void nothing() {}

int attribute(cudaDeviceAttr name, std::int32_t device) {
    int value = 0;
    return cudaDeviceGetAttribute(&value, name, device) == cudaSuccess ? value : 0;
}

}  // namespace

Status status_of(cudaError_t result, ErrorText* error) {
    const Status status = kind_of(result);
    if (status == Status::Ok) return status;
    static_cast<void>(cudaGetLastError());  // clears the error, else the next launch would seem to have failed
    if (status == Status::DriverTooOld) {
        int driver = 0;
        int runtime = 0;
        static_cast<void>(cudaDriverGetVersion(&driver));
        static_cast<void>(cudaRuntimeGetVersion(&runtime));
        std::snprintf(error->text, sizeof(error->text), "it supports CUDA %d.%d, this build needs %d.%d", driver / 1000,
                      driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    } else if (status == Status::NoDriver) {
        std::snprintf(error->text, sizeof(error->text), "%s", cudaGetErrorName(result));
    } else {
        std::snprintf(error->text, sizeof(error->text), "%s: %s", cudaGetErrorName(result), cudaGetErrorString(result));
    }
    return status;
}

Status use_device(std::int32_t device, ErrorText* error) {
    return status_of(cudaSetDevice(device), error);
}

std::mutex& memory_mutex() {
    static std::mutex mutex;
    return mutex;
}

Status count_devices(std::int32_t* n, ErrorText* error) {
    int count = 0;
    const Status status = status_of(cudaGetDeviceCount(&count), error);
    *n = status == Status::Ok ? count : 0;
    return status;
}

Status try_kernel(std::int32_t device, ErrorText* error) {
    if (const Status status = use_device(device, error); status != Status::Ok) return status;
    cudaStream_t stream = nullptr;
    if (const Status status = status_of(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), error);
        status != Status::Ok)
        return status;
    nothing<<<1, 1, 0, stream>>>();
    Status status = status_of(cudaGetLastError(), error);
    if (status == Status::Ok) status = status_of(cudaStreamSynchronize(stream), error);
    static_cast<void>(cudaStreamDestroy(stream));
    return status;
}

Status device_properties(std::int32_t device, DeviceProperties* properties, ErrorText* error) {
    cudaDeviceProp of_card{};
    if (const Status status = status_of(cudaGetDeviceProperties(&of_card, device), error); status != Status::Ok)
        return status;
    *properties = DeviceProperties{};
    std::snprintf(properties->name, sizeof(properties->name), "%s", of_card.name);
    properties->sm = of_card.major * 10 + of_card.minor;
    properties->n_multiprocessors = of_card.multiProcessorCount;
    int version = 0;
    if (cudaDriverGetVersion(&version) == cudaSuccess) properties->driver_version = version;
    if (cudaRuntimeGetVersion(&version) == cudaSuccess) properties->runtime_version = version;
    properties->memory_bytes = of_card.totalGlobalMem;
    properties->l2_bytes = static_cast<std::uint64_t>(of_card.l2CacheSize);
    properties->shared_bytes_per_block = of_card.sharedMemPerBlockOptin;
    // True of cudaMalloc on every GPU and driver known; the runtime does not report it (the driver's
    // cuMemGetAllocationGranularity returns the same for memory that a program maps itself).
    properties->allocation_bytes = std::uint64_t{2} << 20;
    // The memory makes two transfers per clock; the attributes are in kHz and bits.
    properties->memory_bytes_per_second = 2e3 * attribute(cudaDevAttrMemoryClockRate, device) *
                                          (attribute(cudaDevAttrGlobalMemoryBusWidth, device) / 8.0);
    return Status::Ok;
}

Status can_access_peer(std::int32_t device, std::int32_t peer, bool* can, ErrorText* error) {
    int answer = 0;
    const Status status = status_of(cudaDeviceCanAccessPeer(&answer, device, peer), error);
    *can = status == Status::Ok && answer != 0;
    return status;
}

Status memory_info(std::int32_t device, std::uint64_t* free_bytes, std::uint64_t* total_bytes, ErrorText* error) {
    if (const Status status = use_device(device, error); status != Status::Ok) return status;
    std::size_t free = 0;
    std::size_t total = 0;
    const Status status = status_of(cudaMemGetInfo(&free, &total), error);
    *free_bytes = free;
    *total_bytes = total;
    return status;
}

Status allocate(std::int32_t device, std::size_t bytes, void** data, ErrorText* error) {
    if (const Status status = use_device(device, error); status != Status::Ok) return status;
    const std::scoped_lock lock(memory_mutex());
    return status_of(cudaMalloc(data, bytes), error);
}

Status free(std::int32_t device, void* data, ErrorText* error) {
    if (const Status status = use_device(device, error); status != Status::Ok) return status;
    const std::scoped_lock lock(memory_mutex());
    return status_of(cudaFree(data), error);
}

// The device is set although the pages are usable by every device (portable): without it the call would create a
// context on the thread's current GPU, at first GPU 0, and use its memory.
Status allocate_host(std::int32_t device, std::size_t bytes, void** data, ErrorText* error) {
    if (const Status status = use_device(device, error); status != Status::Ok) return status;
    const std::scoped_lock lock(memory_mutex());
    return status_of(cudaHostAlloc(data, bytes, cudaHostAllocPortable), error);
}

Status free_host(std::int32_t device, void* data, ErrorText* error) {
    if (const Status status = use_device(device, error); status != Status::Ok) return status;
    const std::scoped_lock lock(memory_mutex());
    return status_of(cudaFreeHost(data), error);
}

Status register_host(std::int32_t device, void* data, std::size_t bytes, ErrorText* error) {
    if (const Status status = use_device(device, error); status != Status::Ok) return status;
    const std::scoped_lock lock(memory_mutex());
    return status_of(cudaHostRegister(data, bytes, cudaHostRegisterPortable), error);
}

Status unregister_host(std::int32_t device, void* data, ErrorText* error) {
    if (const Status status = use_device(device, error); status != Status::Ok) return status;
    const std::scoped_lock lock(memory_mutex());
    return status_of(cudaHostUnregister(data), error);
}

Status make_stream(std::int32_t device, QueueKind kind, void** stream, ErrorText* error) {
    if (const Status status = use_device(device, error); status != Status::Ok) return status;
    int least = 0;
    int greatest = 0;
    if (const Status status = status_of(cudaDeviceGetStreamPriorityRange(&least, &greatest), error);
        status != Status::Ok)
        return status;
    cudaStream_t made = nullptr;
    // Streams are never ordered with the default stream. Copies have engines of their own; kernels that copies need get
    // priority.
    const Status status = status_of(
        cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, kind == QueueKind::Copy ? greatest : least), error);
    *stream = made;
    return status;
}

Status free_stream(Place place, ErrorText* error) {
    if (const Status status = use_device(place.device, error); status != Status::Ok) return status;
    return status_of(cudaStreamDestroy(static_cast<cudaStream_t>(place.stream)), error);
}

Status synchronize(Place place, ErrorText* error) {
    if (const Status status = use_device(place.device, error); status != Status::Ok) return status;
    return status_of(cudaStreamSynchronize(static_cast<cudaStream_t>(place.stream)), error);
}

Status copy(Place place, void* dst, const void* src, std::size_t bytes, ErrorText* error) {
    if (const Status status = use_device(place.device, error); status != Status::Ok) return status;
    return status_of(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(place.stream)),
                     error);
}

Status make_event(std::int32_t device, EventKind kind, void** event, ErrorText* error) {
    if (const Status status = use_device(device, error); status != Status::Ok) return status;
    cudaEvent_t made = nullptr;
    const unsigned flags = kind == EventKind::Timing ? cudaEventDefault : cudaEventDisableTiming;
    const Status status = status_of(cudaEventCreateWithFlags(&made, flags), error);
    *event = made;
    return status;
}

Status free_event(void* event, ErrorText* error) {
    return status_of(cudaEventDestroy(static_cast<cudaEvent_t>(event)), error);
}

Status record(Place place, void* event, ErrorText* error) {
    if (const Status status = use_device(place.device, error); status != Status::Ok) return status;
    return status_of(cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(place.stream)), error);
}

Status wait(Place place, void* event, ErrorText* error) {
    if (const Status status = use_device(place.device, error); status != Status::Ok) return status;
    return status_of(cudaStreamWaitEvent(static_cast<cudaStream_t>(place.stream), static_cast<cudaEvent_t>(event), 0),
                     error);
}

Status query(void* event, ErrorText* error) {
    return status_of(cudaEventQuery(static_cast<cudaEvent_t>(event)), error);
}

Status await(void* event, ErrorText* error) {
    return status_of(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), error);
}

Status elapsed(void* begin, void* end, float* milliseconds, ErrorText* error) {
    return status_of(cudaEventElapsedTime(milliseconds, static_cast<cudaEvent_t>(begin), static_cast<cudaEvent_t>(end)),
                     error);
}

}  // namespace slipstream::cuda::card
