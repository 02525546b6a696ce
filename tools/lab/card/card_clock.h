// Times the work of a GPU stream with events around it. Large copies keep the GPU busy while the host enqueues the work
// (a head start), so that a time is that of the GPU and not of the host; the time that the host needs to enqueue is
// reported separately.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/cuda/host/cuda_device.h"
#include "kernels/cuda/host/cuda_stream.h"

namespace slipstream::tools {

struct CardTiming {
    double seconds = 0.0;          // seconds of one call; the median of the runs
    double spread = 0.0;           // (slowest - fastest) / median
    double enqueue_seconds = 0.0;  // seconds that the host needs to enqueue one call; the median
};

class CardClock {
public:
    /// Allocates twice `head_start_bytes` on the device (tag Workspace); 0: no head start. `device` and `stream` must
    /// outlive the clock.
    CardClock(CudaDevice& device, Stream& stream, std::size_t head_start_bytes);
    ~CardClock();
    CardClock(const CardClock&) = delete;
    CardClock& operator=(const CardClock&) = delete;

    /// Times `work`, which enqueues `n_calls` calls: one run to warm up, then three to seven runs, fewer if they take
    /// long.
    [[nodiscard]] CardTiming time(std::int64_t n_calls, const std::function<void()>& work);
    /// Times without a head start: what enqueuing and running take together.
    [[nodiscard]] CardTiming time_together(std::int64_t n_calls, const std::function<void()>& work);

private:
    enum class HeadStart : std::uint8_t { Given, None };
    [[nodiscard]] CardTiming measure(std::int64_t n_calls, HeadStart head_start, const std::function<void()>& work);
    struct Run {
        double seconds = 0.0;
        double enqueue_seconds = 0.0;
    };
    void copy_ahead();
    [[nodiscard]] Run run(int n_head_copies, const std::function<void()>& work);

    CudaDevice& device_;
    cuda::CudaStream& stream_;
    std::size_t head_start_bytes_;
    Buffer head_start_;
    int n_head_copies_ = 0;
    void* begin_ = nullptr;
    void* end_ = nullptr;
};

}  // namespace slipstream::tools
