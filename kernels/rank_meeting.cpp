#include "kernels/rank_meeting.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "kernels/collective.h"

namespace slipstream {

std::chrono::nanoseconds rank_is_lost_after(std::size_t bytes, double bytes_per_second) {
    if (bytes_per_second <= 0.0) return kRankIsLost;
    constexpr std::chrono::duration<double> kMost = std::chrono::hours(24 * 7);
    const std::chrono::duration<double> time(static_cast<double>(bytes) / bytes_per_second);
    return kRankIsLost + std::chrono::duration_cast<std::chrono::nanoseconds>(std::min(time, kMost));
}

// A waiting thread increments n_waiting_ before it tests its condition again. So either it sees the change, or this
// function sees that it waits.
void RankMeeting::announce() {
    if (n_waiting_ == 0) return;
    const std::scoped_lock lock(mutex_);
    changed_.notify_all();
}

void RankMeeting::abort() noexcept {
    aborted_ = true;
    const std::scoped_lock lock(mutex_);
    changed_.notify_all();
}

void RankMeeting::throw_aborted() {
    throw CollectiveAborted("another device has failed");
}

void RankMeeting::throw_lost(const std::string& missing) const {
    throw IoError(fmt::format("{} within {} s", missing, std::chrono::duration<double>(lost_after_).count()));
}

void RankMeeting::restart() {
    CHECK(n_waiting_ == 0, "a restart while {} wait", n_waiting_.load());
    aborted_ = false;
}

}  // namespace slipstream
