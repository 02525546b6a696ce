// A graph of a CUDA device: the driver's handle, the arrays that its launches read anew, and what it relies on.
#pragma once

#include <cstdint>

#include "kernels/cuda/host/graph_arrays.h"
#include "kernels/graph.h"

namespace slipstream {
class CudaDevice;
}

namespace slipstream::cuda {

class CudaGraph final : public Graph {
public:
    /// Nothing is captured yet. The arrays have `block_bytes` of device memory from `block` on.
    CudaGraph(const CudaDevice& device, const std::byte* block, std::size_t block_bytes);
    ~CudaGraph() override;
    CudaGraph(const CudaGraph&) = delete;
    CudaGraph& operator=(const CudaGraph&) = delete;

    [[nodiscard]] std::int64_t n_nodes() const override { return n_nodes_; }

    /// What end_capture gave; taken over.
    void set_captured(void* handle, std::int64_t n_nodes) {
        handle_ = handle;
        n_nodes_ = n_nodes;
    }
    [[nodiscard]] void* handle() const { return handle_; }
    [[nodiscard]] GraphArrays& arrays() { return arrays_; }
    /// Device memory at an offset of the arrays' block.
    template <typename T>
    [[nodiscard]] const T* at(std::size_t offset) const {
        return reinterpret_cast<const T*>(block_ + offset);
    }
    /// Whether workspace lies where it lay at the capture.
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
