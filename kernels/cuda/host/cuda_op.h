// One call of an op on a CUDA device, as the ops_*.cpp write it: the stream's turn at staging and scratch, host arrays
// to device memory, the launch, and what an error says.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/base/check.h"
#include "kernels/cuda/host/cuda_device.h"
#include "kernels/cuda/host/cuda_graph.h"
#include "kernels/cuda/host/cuda_stream.h"
#include "kernels/cuda/host/staging.h"
#include "kernels/cuda/module_api.h"

namespace slipstream::cuda {

class Op {
public:
    /// `exec` is a CudaDevice and a compute stream of it.
    explicit Op(ExecRef exec)
        : device_(static_cast<CudaDevice&>(exec.device)), stream_(static_cast<CudaStream&>(exec.stream)) {
        device_.begin_turn(stream_);
        device_.count_change();
        device_.staging().begin_op();
    }
    Op(const Op&) = delete;
    Op& operator=(const Op&) = delete;

    [[nodiscard]] CudaDevice& device() { return device_; }
    [[nodiscard]] CudaStream& stream() { return stream_; }

    /// The graph that this op is captured into; null: it is done as it comes.
    [[nodiscard]] CudaGraph* graph() { return stream_.capturing(); }

    /// `n` elements at `host`, which may change afterwards, in device memory (64-byte aligned) for launches of this op.
    /// No copy where a recent op staged the same bytes.
    template <typename T>
    [[nodiscard]] const T* stage(const T* host, std::int64_t n) {
        static_assert(std::is_trivially_copyable_v<T>);
        if (n == 0) return nullptr;
        CHECK(graph() == nullptr, "an op in a graph, of an array that no launch would read anew");
        return reinterpret_cast<const T*>(device_.staging().stage(stream_, reinterpret_cast<const std::byte*>(host),
                                                                  static_cast<std::size_t>(n) * sizeof(T)));
    }
    /// The same for an array that a graph's launches read anew.
    [[nodiscard]] const std::int32_t* stage_rows(const std::int32_t* host, std::int64_t n) {
        if (n == 0 || graph() == nullptr) return stage(host, n);
        return graph()->at<std::int32_t>(graph()->arrays().add_rows(host, n));
    }
    /// One region an op: asking again gives the same bytes.
    [[nodiscard]] std::byte* scratch(std::size_t bytes) { return device_.scratch(bytes); }

    /// Enqueues a kernel of the table, e.g. launch(&Module::rms_norm, args, [&] { return "rms_norm [7, 64]"; });
    /// `describe` is asked where it fails. Throws CudaError.
    template <typename Launch, typename Describe>
    void launch(Status (*Module::*function)(Place, const Launch*, ErrorText*), const Launch& args,
                const Describe& describe) {
        ErrorText error{};
        const Status status = (device_.table().*function)(stream_.place(), &args, &error);
        if (status != Status::Ok) [[unlikely]]
            device_.check(status, error, std::string(describe()));
    }

private:
    CudaDevice& device_;
    CudaStream& stream_;
};

}  // namespace slipstream::cuda
