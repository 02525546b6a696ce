// One call of an op on a CUDA device, as the ops_*.cpp use it: gets the stream's turn at staging and scratch, stages
// host arrays, launches kernels, and describes errors.
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

/// An op that is being enqueued. Create one per call of an op, on the thread that uses the device.
class Op {
public:
    /// `exec` must be a CudaDevice and one of its compute streams. Throws CudaError if the turn cannot be taken.
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

    /// Returns the graph into which this op is captured; null if it is not captured.
    [[nodiscard]] CudaGraph* graph() { return stream_.capturing(); }

    /// Returns a copy of the `n` elements at `host` in device memory, 64-byte aligned, valid for launches of this op;
    /// null if n is 0. `host` may change afterwards. Copies nothing if a recent op staged the same bytes. Must not be
    /// called during a capture (CHECKed).
    template <typename T>
    [[nodiscard]] const T* stage(const T* host, std::int64_t n) {
        static_assert(std::is_trivially_copyable_v<T>);
        if (n == 0) return nullptr;
        CHECK(graph() == nullptr, "an op in a graph, of an array that no launch would read anew");
        return reinterpret_cast<const T*>(
            device_.staging().stage(stream_, reinterpret_cast<const std::byte*>(host), n * sizeof(T)));
    }
    /// Returns a copy of the `n` elements at `host` in device memory, valid for launches of this op; null if n is 0.
    /// May be called during a capture, unlike stage(): every launch of the graph then reads the array at `host` again,
    /// so the array must stay there as long as the graph is launched.
    [[nodiscard]] const std::int32_t* stage_rows(const std::int32_t* host, std::int64_t n) {
        if (n == 0 || graph() == nullptr) return stage(host, n);
        return graph()->at<std::int32_t>(graph()->arrays().add_rows(host, n));
    }
    /// Returns at least `bytes` of device memory for this op. There is one region per op: a second call returns the
    /// same bytes.
    [[nodiscard]] std::byte* scratch(std::size_t bytes) { return device_.scratch(bytes); }

    /// Enqueues a kernel of the function table, e.g. launch(&Module::rms_norm, args, [&] { return "rms_norm [7, 64]";
    /// }). `describe` is called only if the launch fails. Throws CudaError or OutOfBudget.
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
