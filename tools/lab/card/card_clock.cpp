#include "tools/lab/card/card_clock.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

namespace slipstream::tools {

namespace {

constexpr double kHeadStartSeconds = 2e-3;
constexpr int kMaxHeadCopies = 64;
constexpr double kSecondsPerFigure = 0.15;
constexpr std::size_t kLeastRuns = 3;
constexpr std::size_t kMostRuns = 7;

using HostClock = std::chrono::steady_clock;

double seconds_since(HostClock::time_point began) {
    return std::chrono::duration<double>(HostClock::now() - began).count();
}

}  // namespace

CardClock::CardClock(CudaDevice& device, Stream& stream, std::size_t head_start_bytes)
    : device_(device), stream_(static_cast<cuda::CudaStream&>(stream)), head_start_bytes_(head_start_bytes) {
    if (head_start_bytes_ > 0)
        head_start_ = device_.allocate(2 * head_start_bytes_, MemoryTag::Workspace, "the head start of a bench");
    cuda::ErrorText error{};
    for (void** event : {&begin_, &end_})
        device_.check(device_.table().make_event(device_.ordinal(), cuda::EventKind::Timing, event, &error), error,
                      "an event for times");
    if (head_start_bytes_ == 0) return;
    static_cast<void>(run(0, [&] { copy_ahead(); }));
    const double seconds = run(0, [&] { copy_ahead(); }).seconds;
    n_head_copies_ = std::clamp(static_cast<int>(kHeadStartSeconds / seconds) + 1, 1, kMaxHeadCopies);
}

void CardClock::copy_ahead() {
    stream_.copy(head_start_.data() + head_start_bytes_, head_start_.data(), head_start_bytes_);
}

CardClock::~CardClock() {
    cuda::ErrorText ignored{};
    for (void* event : {begin_, end_})
        if (event != nullptr) static_cast<void>(device_.table().free_event(event, &ignored));
}

CardClock::Run CardClock::run(int n_head_copies, const std::function<void()>& work) {
    const cuda::Module& table = device_.table();
    cuda::ErrorText error{};
    for (int i = 0; i < n_head_copies; ++i) copy_ahead();
    device_.check(table.record(stream_.place(), begin_, &error), error, "the begin of a time");
    const auto began = HostClock::now();
    work();
    Run result;
    result.enqueue_seconds = seconds_since(began);
    device_.check(table.record(stream_.place(), end_, &error), error, "the end of a time");
    device_.check(table.await(end_, &error), error, "waiting for work that is timed");
    float milliseconds = 0.0F;
    device_.check(table.elapsed(begin_, end_, &milliseconds, &error), error, "the time between two events");
    result.seconds = std::max(double{milliseconds} * 1e-3, 1e-9);
    return result;
}

CardTiming CardClock::measure(std::int64_t n_calls, HeadStart head_start, const std::function<void()>& work) {
    const int n_head_copies = head_start == HeadStart::Given ? n_head_copies_ : 0;
    static_cast<void>(run(n_head_copies, work));
    std::vector<double> seconds;
    std::vector<double> enqueueing;
    double total = 0.0;
    while (seconds.size() < kLeastRuns || (seconds.size() < kMostRuns && total < kSecondsPerFigure)) {
        const Run one = run(n_head_copies, work);
        seconds.push_back(one.seconds);
        enqueueing.push_back(one.enqueue_seconds);
        total += one.seconds;
    }
    std::sort(seconds.begin(), seconds.end());
    std::sort(enqueueing.begin(), enqueueing.end());
    const double median = seconds[seconds.size() / 2];
    const auto calls = static_cast<double>(n_calls);
    return {.seconds = median / calls,
            .spread = (seconds.back() - seconds.front()) / median,
            .enqueue_seconds = enqueueing[enqueueing.size() / 2] / calls};
}

CardTiming CardClock::time(std::int64_t n_calls, const std::function<void()>& work) {
    return measure(n_calls, HeadStart::Given, work);
}

CardTiming CardClock::time_together(std::int64_t n_calls, const std::function<void()>& work) {
    return measure(n_calls, HeadStart::None, work);
}

}  // namespace slipstream::tools
