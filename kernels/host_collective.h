// Sums over ranks through memory of the host: each rank copies its part out and adds those of the others where they
// lie. CPU devices read one another's parts; cards read page-locked memory, by the kernel that adds, which waits for
// no copy of a ring; neither needs a way from device to device.
//
// A rank has two slots and takes them in turn: when it writes one again, all ranks have come to the call between, so
// they have read what was there. Hosts wait for one another until all have enqueued their copies; streams wait by
// events.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "kernels/rank_sums.h"

namespace slipstream {

class HostCollective final : public RankSums {
public:
    /// Between `devices`, a rank each, all of one kind (CHECKed), which outlive this; of up to `bytes` at once. Slots
    /// of CPU devices are in their budgets, those of cards page-locked memory of the host. Throws OutOfBudget.
    HostCollective(std::span<Device* const> devices, std::size_t bytes,
                   std::chrono::nanoseconds lost_after = kRankIsLost);
    ~HostCollective() override;
    HostCollective(const HostCollective&) = delete;
    HostCollective& operator=(const HostCollective&) = delete;

    [[nodiscard]] Collective& rank(std::size_t rank) override;
    /// Of each device's slots.
    [[nodiscard]] static std::size_t device_bytes(std::size_t bytes) { return 2 * bytes; }

private:
    class Rank;

    void restart();

    std::size_t slot_bytes_;
    RankMeeting meeting_;
    std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace slipstream
