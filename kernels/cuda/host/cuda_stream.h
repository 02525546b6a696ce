// Streams and events of a CUDA device, and figures of its link.
//
// Each use of an event that is not known to be done has a driver handle of its own, so that a wait for it does not wait
// for a later use. Handles of finished uses are used again; there are as many as the host has ever been ahead.
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

/// An event of a CUDA device, which must outlive it. Thread-safe. All functions except recorded() may throw CudaError.
class CudaEvent final : public Event {
public:
    explicit CudaEvent(const CudaDevice& device);
    ~CudaEvent() override;
    CudaEvent(const CudaEvent&) = delete;
    CudaEvent& operator=(const CudaEvent&) = delete;

    [[nodiscard]] std::uint64_t recorded() const override;
    [[nodiscard]] std::uint64_t completed() const override;

    /// Records the next use after all work enqueued on the stream of `place`, and returns its number.
    std::uint64_t record(Place place);
    /// Makes later work on the stream of `place` wait for use `use`, which must have been recorded (CHECKed).
    void wait(Place place, std::uint64_t use) const;
    /// Blocks the host until use `use` is done; 0 returns at once. The use must have been recorded (CHECKed).
    void await(std::uint64_t use) const;

private:
    // Returns a driver event for a new use. The caller of this function and of the next three must hold mutex_.
    [[nodiscard]] void* take_handle();
    [[nodiscard]] void* handle_of(std::uint64_t use) const;
    void retire(std::uint64_t use) const;
    void retire_done() const;

    const CudaDevice* device_;
    mutable std::mutex mutex_;
    mutable std::deque<void*> pending_;  // handles of uses completed_ + 1 to recorded_
    mutable std::vector<void*> idle_;    // handles that no use needs at present
    std::uint64_t recorded_ = 0;
    mutable std::uint64_t completed_ = 0;  // uses known to be done
};

/// Counts bytes and times of the copies in one direction, measured by events before and after each copy. Thread-safe;
/// the device must outlive it.
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
    /// Returns events for the next copy, of `bytes` bytes; the caller must record them before and after it, then call
    /// enqueued() or forgotten().
    [[nodiscard]] Copy begin(std::size_t bytes);
    /// Counts a copy whose events are both recorded.
    void enqueued(const Copy& copy);
    /// Takes back the events of a copy that was not enqueued.
    void forgotten(const Copy& copy);
    /// Returns the figures of the copies that are done.
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
    /// Waits until the enqueued work is done. Errors are ignored.
    ~CudaStream() override;
    CudaStream(const CudaStream&) = delete;
    CudaStream& operator=(const CudaStream&) = delete;

    void copy(void* dst, const void* src, std::size_t bytes) override;
    std::uint64_t record(Event& event) override;
    void wait(const Event& event, std::uint64_t use) override;
    void synchronize() override;
    /// Whether the stream can capture graphs: true for compute streams.
    [[nodiscard]] bool has_graphs() const override { return meter_ == nullptr; }
    [[nodiscard]] std::unique_ptr<Graph> capture(const std::function<void()>& enqueue) override;
    [[nodiscard]] bool launch(Graph& graph, const GraphNumbers& numbers) override;

    [[nodiscard]] Place place() const { return place_; }
    /// Returns the graph that is being captured; null if none is.
    [[nodiscard]] CudaGraph* capturing() const { return capturing_; }

private:
    CudaDevice* device_;
    LinkMeter* meter_ = nullptr;  // measures the link of a copy stream; null: a compute stream
    LinkPace* pace_ = nullptr;    // slows the link down; null: it is not slowed down
    std::int32_t pace_slot_ = 0;
    Place place_{};
    CudaGraph* capturing_ = nullptr;
};

}  // namespace slipstream::cuda
