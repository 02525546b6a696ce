// Streams and events of a CUDA device, and what its link has carried.
//
// Each use of an event that is not known to be done has a handle of the driver of its own, so that a wait for it waits
// for nothing later. Handles of uses that are done serve again; there are as many as the host has ever run ahead.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/cuda/host/cuda_device.h"
#include "kernels/cuda/module_api.h"
#include "kernels/device.h"

namespace slipstream::cuda {

class CudaGraph;

class CudaEvent final : public Event {
public:
    explicit CudaEvent(const CudaDevice& device);
    ~CudaEvent() override;
    CudaEvent(const CudaEvent&) = delete;
    CudaEvent& operator=(const CudaEvent&) = delete;

    [[nodiscard]] std::uint64_t recorded() const override;
    [[nodiscard]] std::uint64_t completed() const override;

    std::uint64_t record(Place place);
    /// CHECKs that the use was recorded.
    void wait(Place place, std::uint64_t use) const;
    /// Blocks the host until the use is done; 0 is.
    void await(std::uint64_t use) const;

private:
    // All with mutex_ held.
    [[nodiscard]] void* take_handle();
    [[nodiscard]] void* handle_of(std::uint64_t use) const;
    void retire(std::uint64_t use) const;
    void retire_done() const;

    const CudaDevice* device_;
    mutable std::mutex mutex_;
    mutable std::deque<void*> pending_;  // handles of uses completed_ + 1 ... recorded_
    mutable std::vector<void*> idle_;
    std::uint64_t recorded_ = 0;
    mutable std::uint64_t completed_ = 0;  // known to be done
};

/// Bytes and times of the copies of one direction, measured by events around each.
class LinkMeter {
public:
    explicit LinkMeter(const CudaDevice& device) : device_(&device) {}
    ~LinkMeter();
    LinkMeter(const LinkMeter&) = delete;
    LinkMeter& operator=(const LinkMeter&) = delete;

    struct Copy {
        void* begin = nullptr;
        void* end = nullptr;
        std::size_t bytes = 0;
    };
    /// Events to put around the next copy of `bytes`.
    [[nodiscard]] Copy begin(std::size_t bytes);
    /// Both are recorded.
    void enqueued(const Copy& copy);
    /// The copy was not enqueued.
    void forgotten(const Copy& copy);
    /// Of the copies that are done.
    [[nodiscard]] LinkFigures figures();

private:
    void collect();
    [[nodiscard]] void* take_event();

    const CudaDevice* device_;
    std::mutex mutex_;
    std::deque<Copy> under_way_;
    std::vector<void*> idle_events_;
    LinkFigures figures_;
};

class CudaStream final : public Stream {
public:
    CudaStream(CudaDevice& device, StreamKind kind);
    /// Waits for what is enqueued.
    ~CudaStream() override;
    CudaStream(const CudaStream&) = delete;
    CudaStream& operator=(const CudaStream&) = delete;

    void copy(void* dst, const void* src, std::size_t bytes) override;
    std::uint64_t record(Event& event) override;
    void wait(const Event& event, std::uint64_t use) override;
    void synchronize() override;
    /// Compute streams have graphs.
    [[nodiscard]] bool has_graphs() const override { return meter_ == nullptr; }
    [[nodiscard]] std::unique_ptr<Graph> capture(const std::function<void()>& enqueue) override;
    [[nodiscard]] bool launch(Graph& graph, const GraphNumbers& numbers) override;

    [[nodiscard]] Place place() const { return place_; }
    /// What is being captured; null: nothing.
    [[nodiscard]] CudaGraph* capturing() const { return capturing_; }

private:
    CudaDevice* device_;
    LinkMeter* meter_ = nullptr;  // null: a compute stream
    LinkPace* pace_ = nullptr;    // null: copies take the time they take
    std::int32_t pace_slot_ = 0;
    Place place_{};
    CudaGraph* capturing_ = nullptr;
};

}  // namespace slipstream::cuda
