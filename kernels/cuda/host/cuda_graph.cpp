#include "kernels/cuda/host/cuda_graph.h"

#include "kernels/cuda/host/cuda_device.h"

namespace slipstream::cuda {

CudaGraph::CudaGraph(const CudaDevice& device, const std::byte* block, std::size_t block_bytes)
    : device_(&device),
      block_(block),
      workspace_moves_(device.n_workspace_moves()),
      arrays_(block_bytes, device.attention_card()) {}

CudaGraph::~CudaGraph() {
    if (handle_ == nullptr) return;
    ErrorText ignored{};
    device_->table().free_graph(device_->ordinal(), handle_, &ignored);
}

bool CudaGraph::is_current() const {
    return workspace_moves_ == device_->n_workspace_moves();
}

}  // namespace slipstream::cuda
