// Lets the host threads of several ranks wait for each other: they poll for a short time, then sleep.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>

#include "kernels/base/spin.h"

namespace slipstream {

/// How long ranks wait for a rank that does not itself wait for a link. A link that stalls is noticed far sooner, by
/// the thread that waits for its copy.
inline constexpr std::chrono::nanoseconds kRankIsLost = std::chrono::minutes(10);
/// Returns how long to wait for a rank whose pass first copies `bytes` over a link of `bytes_per_second`: kRankIsLost
/// plus the time of the copy, at most a week. A rate of 0 is unknown; then the copy counts as taking no time.
[[nodiscard]] std::chrono::nanoseconds rank_is_lost_after(std::size_t bytes, double bytes_per_second);

class RankMeeting {
public:
    /// `lost_after`: time after which await() gives up. It is counted in slices, so that the time for which the program
    /// was stopped (Ctrl-Z) does not count.
    explicit RankMeeting(std::chrono::nanoseconds lost_after) : lost_after_(lost_after) {}

    /// Makes waiting threads test their condition again. Call it after an atomic that a condition reads was changed.
    void announce();
    /// Blocks until `is_there()` is true. Throws CollectiveAborted if abort() is called in the meantime, and IoError
    /// "<missing()> within <time>" after lost_after.
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
    /// Cancels an abort(). No thread may wait (CHECKed).
    void restart();

private:
    static constexpr int kSlices = 20;  // parts of lost_after_ in which time is counted

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
    std::condition_variable changed_;  // notified by announce() and abort()
};

}  // namespace slipstream
