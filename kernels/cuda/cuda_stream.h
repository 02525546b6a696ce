// Streams and events of a CUDA device, and what its link has carried.
//
// An event has a few handles of the driver, used in turn: use u has handle u mod kHandles, so that a wait for one of
// the last uses waits for no later one. A wait for an older use waits for the one that took its handle over, which is
// later work of streams that are ordered: too much, never too little.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/module_api.h"
#include "kernels/device.h"

namespace slipstream::cuda {

class CudaEvent final : public Event {
public:
    explicit CudaEvent(const CudaDevice& device);
    ~CudaEvent() override;
    CudaEvent(const CudaEvent&) = delete;
    CudaEvent& operator=(const CudaEvent&) = delete;

    [[nodiscard]] std::uint64_t recorded() const override { return recorded_.load(std::memory_order_acquire); }
    [[nodiscard]] std::uint64_t completed() const override;

    std::uint64_t record(Place place);
    /// CHECKs that the use was recorded.
    void wait(Place place, std::uint64_t use) const;
    /// Blocks the host until the use is done; 0 is.
    void await(std::uint64_t use) const;

private:
    static constexpr std::uint64_t kHandles = 4;
    [[nodiscard]] void* handle_of(std::uint64_t use) const;

    const CudaDevice* device_;
    mutable std::array<void*, kHandles> handles_{};  // made when first used
    std::atomic<std::uint64_t> recorded_{0};
    mutable std::atomic<std::uint64_t> completed_{0};
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

    [[nodiscard]] Place place() const { return place_; }

private:
    CudaDevice* device_;
    LinkMeter* meter_ = nullptr;  // null: a compute stream
    Place place_{};
};

}  // namespace slipstream::cuda
