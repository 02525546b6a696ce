// The module's one entry and its table. A launch function only enqueues; enqueue() then asks the runtime for the error
// of the launch and returns it as the status, so every launch is checked. An error inside a kernel appears in a later
// call for its device, as always in CUDA; compute-sanitizer names the kernel.
#include "kernels/cuda/card/blas.h"
#include "kernels/cuda/card/nccl_calls.h"
#include "kernels/cuda/card/runtime.h"
#include "kernels/cuda/host/table_bytes.h"
#include "kernels/cuda/launches.h"
#include "kernels/cuda/module_api.h"

// GPU architectures that the kernels are compiled for (Module::architectures); the build defines the macro.
#ifndef SLIPSTREAM_CUDA_ARCHITECTURES
#define SLIPSTREAM_CUDA_ARCHITECTURES ""
#endif

namespace slipstream::cuda {

namespace {

template <typename Launch, void (*kLaunch)(const Launch&, void*)>
Status enqueue(Place place, const Launch* launch, ErrorText* error) {
    if (const Status status = card::use_device(place.device, error); status != Status::Ok) return status;
    kLaunch(*launch, place.stream);
    return card::status_of(cudaGetLastError(), error);
}

#define SLIPSTREAM_ENQUEUE(name, Launch) enqueue<Launch, launch_##name>,
constexpr Module kModule{kModuleVersion,
                         kTableBytes,
                         SLIPSTREAM_CUDA_ARCHITECTURES,
                         card::count_devices,
                         card::try_kernel,
                         card::device_properties,
                         card::memory_info,
                         card::allocate,
                         card::free,
                         card::allocate_host,
                         card::free_host,
                         card::register_host,
                         card::unregister_host,
                         card::make_stream,
                         card::free_stream,
                         card::synchronize,
                         card::copy,
                         card::make_event,
                         card::free_event,
                         card::record,
                         card::wait,
                         card::query,
                         card::await,
                         card::elapsed,
                         card::begin_capture,
                         card::end_capture,
                         card::launch_graph,
                         card::free_graph,
                         card::blas_version,
                         card::make_blas,
                         card::free_blas,
                         card::prompt_product,
                         card::can_access_peer,
                         card::nccl_version,
                         card::make_communicators,
                         card::free_communicator,
                         card::abort_communicator,
                         card::sum_parts,
                         card::gather_parts,
                         SLIPSTREAM_CUDA_LAUNCHES(SLIPSTREAM_ENQUEUE)};
#undef SLIPSTREAM_ENQUEUE

}  // namespace

}  // namespace slipstream::cuda

extern "C" __attribute__((visibility("default"))) const slipstream::cuda::Module* slipstream_cuda_module() {
    return &slipstream::cuda::kModule;
}
