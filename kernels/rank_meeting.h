// Where the host threads of several ranks wait for one another: for a little while at full attention, then asleep.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>

#include "kernels/base/spin.h"

namespace slipstream {

/// How long ranks wait for one that need not wait for a link. A link that stands still is given up far sooner, by who
/// waits for its copy.
inline constexpr std::chrono::nanoseconds kRankIsLost = std::chrono::minutes(10);
/// The same where a pass first brings so many bytes over a link of that rate; 0: one that is not known, and takes no
/// time. At most a week more.
[[nodiscard]] std::chrono::nanoseconds rank_is_lost_after(std::size_t bytes, double bytes_per_second);

class RankMeeting {
public:
    /// Time is counted in slices, so that a program that was stopped (Ctrl-Z) has not waited.
    explicit RankMeeting(std::chrono::nanoseconds lost_after) : lost_after_(lost_after) {}

    /// Those who wait look again: what they wait for has been set, by atomics.
    void announce();
    /// Returns once `is_there()` is true. Throws CollectiveAborted where all is given up meanwhile, and IoError
    /// "<missing()> within <time>" where nothing comes.
    template <typename IsThere, typename Missing>
    void await(const IsThere& is_there, const Missing& missing) {
        for (int i = 0; i < kSpins; ++i) {
            if (is_there()) return;
            relax();
        }
        std::unique_lock lock(mutex_);
        ++n_waiting_;
        int n_slices = 0;
        while (!is_there() && !aborted_ && n_slices < kSlices)
            if (changed_.wait_for(lock, lost_after_ / kSlices) == std::cv_status::timeout) ++n_slices;
        --n_waiting_;
        if (!is_there()) give_up(missing);
    }

    void abort() noexcept;
    [[nodiscard]] bool aborted() const { return aborted_; }
    /// Throws CollectiveAborted.
    [[noreturn]] static void throw_aborted();
    /// An abort is forgotten. Nobody waits (CHECKed).
    void restart();

private:
    static constexpr int kSlices = 20;  // of the time after which a rank is lost

    template <typename Missing>
    [[noreturn]] void give_up(const Missing& missing) const {
        if (aborted_) throw_aborted();
        throw_lost(missing());
    }
    [[noreturn]] void throw_lost(const std::string& missing) const;

    std::chrono::nanoseconds lost_after_;
    std::atomic<bool> aborted_{false};
    std::atomic<int> n_waiting_{0};
    std::mutex mutex_;
    std::condition_variable changed_;  // a rank has come, or all is given up
};

}  // namespace slipstream
