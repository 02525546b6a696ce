// Sums over ranks through host memory: each rank copies its part to a slot in host memory and adds the parts of the
// other ranks from their slots. CPU devices read the slots directly. GPUs read them as page-locked memory by the kernel
// that adds, which waits for no copy of a transfer ring. No copies between devices are needed.
//
// A rank has two slots and uses them alternately. When it writes a slot again, its stream has waited for the copies
// that the other ranks made in the call in between, and those come after their reads of the slot. Host threads wait
// until all ranks have enqueued their copies; streams wait for each other by events.
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
    /// Sums up to `bytes` at once over `devices`, which are the ranks, all of one kind (CHECKed), and must outlive this
    /// object. Slots of CPU devices count in their budgets; those of GPUs are page-locked host memory. A rank that does
    /// not call within `lost_after` counts as lost (RankMeeting). Throws OutOfBudget.
    HostCollective(std::span<Device* const> devices, std::size_t bytes,
                   std::chrono::nanoseconds lost_after = kRankIsLost);
    ~HostCollective() override;
    HostCollective(const HostCollective&) = delete;
    HostCollective& operator=(const HostCollective&) = delete;

    [[nodiscard]] Collective& rank(std::size_t rank) override;
    /// Returns the bytes of the two slots of one device.
    [[nodiscard]] static std::size_t device_bytes(std::size_t bytes) { return 2 * bytes; }

private:
    class Rank;

    void restart();

    std::size_t slot_bytes_;
    RankMeeting meeting_;
    std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace slipstream
