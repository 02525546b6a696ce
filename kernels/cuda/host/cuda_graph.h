// A graph of a CUDA device: the driver's handle, the arrays that its launches read again, and the addresses that it
// relies on.
#pragma once

#include <cstdint>

#include "kernels/cuda/host/graph_arrays.h"
#include "kernels/graph.h"

namespace slipstream {
class CudaDevice;
}

namespace slipstream::cuda {

/// A captured graph of a CUDA device, which must outlive it. CudaStream::capture() makes it.
class CudaGraph final : public Graph {
public:
    /// Has no captured work yet. Its arrays are in `block_bytes` bytes of device memory at `block`.
    CudaGraph(const CudaDevice& device, const std::byte* block, std::size_t block_bytes);
    ~CudaGraph() override;
    CudaGraph(const CudaGraph&) = delete;
    CudaGraph& operator=(const CudaGraph&) = delete;

    [[nodiscard]] std::int64_t n_nodes() const override { return n_nodes_; }

    /// Takes ownership of the graph that Module::end_capture() returned.
    void set_captured(void* handle, std::int64_t n_nodes) {
        handle_ = handle;
        n_nodes_ = n_nodes;
    }
    [[nodiscard]] void* handle() const { return handle_; }
    [[nodiscard]] GraphArrays& arrays() { return arrays_; }
    /// Returns the device memory at byte `offset` of the arrays' block.
    template <typename T>
    [[nodiscard]] const T* at(std::size_t offset) const {
        return reinterpret_cast<const T*>(block_ + offset);
    }
    /// Whether scratch and staging are at the addresses of the capture; if not, the graph must not be launched.
    [[nodiscard]] bool is_current() const;

private:
    const CudaDevice* device_;
    const std::byte* block_;
    std::uint64_t workspace_moves_;
    GraphArrays arrays_;
    void* handle_ = nullptr;
    std::int64_t n_nodes_ = 0;
};

}  // namespace slipstream::cuda
