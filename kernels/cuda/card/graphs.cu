// Graphs for the module's function table, on the CUDA runtime (what each function does: module_api.h). A capture
// belongs to its thread: calls of other threads meanwhile (allocations on another GPU, queries of copy streams) are not
// part of it.
#include "kernels/cuda/card/runtime.h"

namespace slipstream::cuda::card {

namespace {

cudaStream_t stream_of(Place place) {
    return static_cast<cudaStream_t>(place.stream);
}

// Makes `captured` ready to launch. Its memory on the GPU is allocated now, not at the first launch.
cudaError_t instantiate(cudaGraph_t captured, cudaStream_t stream, cudaGraphExec_t* ready, std::size_t* n_nodes) {
    if (const cudaError_t result = cudaGraphGetNodes(captured, nullptr, n_nodes); result != cudaSuccess) return result;
    if (const cudaError_t result = cudaGraphInstantiate(ready, captured, 0); result != cudaSuccess) return result;
    const cudaError_t result = cudaGraphUpload(*ready, stream);
    if (result != cudaSuccess) static_cast<void>(cudaGraphExecDestroy(*ready));
    return result;
}

}  // namespace

Status begin_capture(Place place, ErrorText* error) {
    if (const Status status = use_device(place.device, error); status != Status::Ok) return status;
    return status_of(cudaStreamBeginCapture(stream_of(place), cudaStreamCaptureModeThreadLocal), error);
}

Status end_capture(Place place, void** graph, std::int64_t* n_nodes, ErrorText* error) {
    if (const Status status = use_device(place.device, error); status != Status::Ok) return status;
    cudaGraph_t captured = nullptr;
    if (const Status status = status_of(cudaStreamEndCapture(stream_of(place), &captured), error); status != Status::Ok)
        return status;
    cudaGraphExec_t ready = nullptr;
    std::size_t n = 0;
    const Status status = status_of(instantiate(captured, stream_of(place), &ready, &n), error);
    static_cast<void>(cudaGraphDestroy(captured));
    if (status != Status::Ok) return status;
    *graph = ready;
    *n_nodes = static_cast<std::int64_t>(n);
    return Status::Ok;
}

Status launch_graph(Place place, void* graph, ErrorText* error) {
    if (const Status status = use_device(place.device, error); status != Status::Ok) return status;
    return status_of(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_of(place)), error);
}

Status free_graph(std::int32_t device, void* graph, ErrorText* error) {
    if (const Status status = use_device(device, error); status != Status::Ok) return status;
    return status_of(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)), error);
}

}  // namespace slipstream::cuda::card
