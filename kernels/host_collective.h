// Sums over ranks through memory of the host: each rank copies its part out and adds those of the others where they
// lie. CPU devices read one another's parts; cards read page-locked memory, by the kernel that adds, which waits for
// no copy of a ring; neither needs a way from device to device.
//
// A rank has two slots and takes them in turn: when it writes one again, all ranks have come to the call between, so
// they have read what was there. Hosts wait for one another until all have enqueued their copies; streams wait by
// events.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "kernels/collective.h"

namespace slipstream {

/// How long ranks wait for one. A link that stands still is given up far sooner, by who waits for its copy; this is
/// longer than what a layer takes to come over the slowest of them.
inline constexpr std::chrono::nanoseconds kRankIsLost = std::chrono::minutes(10);

class HostCollective {
public:
    /// Between `devices`, a rank each, all of one kind (CHECKed), which outlive this; of up to `bytes` at once. Time is
    /// counted in slices, so that a program that was stopped (Ctrl-Z) has not waited. Throws OutOfBudget where cards
    /// get no page-locked memory.
    HostCollective(std::span<Device* const> devices, std::size_t bytes,
                   std::chrono::nanoseconds lost_after = kRankIsLost);
    ~HostCollective();
    HostCollective(const HostCollective&) = delete;
    HostCollective& operator=(const HostCollective&) = delete;

    /// What that rank calls; lives as long as this.
    [[nodiscard]] Collective& rank(std::size_t rank);

private:
    class Rank;

    void announce();
    void await(const Rank& rank, std::uint64_t call);
    void abort() noexcept;
    void restart();

    std::size_t slot_bytes_;
    std::chrono::nanoseconds lost_after_;
    std::vector<std::unique_ptr<Rank>> ranks_;
    std::atomic<bool> aborted_{false};
    std::atomic<int> n_waiting_{0};
    std::mutex mutex_;
    std::condition_variable changed_;  // a rank has come, or all is given up
};

}  // namespace slipstream
