// The ways in which several devices may sum up their parts, and which of them serves the devices at hand. Whichever it
// is, a sum has the same bits: of two parts in either order, of more in the order of the ranks. So it never changes a
// text, and no session remembers it.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "kernels/collective.h"
#include "kernels/rank_meeting.h"

namespace slipstream {

/// What sums up for several devices, a rank each.
class RankSums {
public:
    virtual ~RankSums() = default;
    /// What that rank calls; lives as long as this.
    [[nodiscard]] virtual Collective& rank(std::size_t rank) = 0;
};

struct ChosenSums {
    std::unique_ptr<RankSums> sums;
    std::string way;      // "NCCL 2.28.9", "host memory (NCCL is not installed)"
    std::string trouble;  // a line on what should have worked and did not; empty: nothing
};
/// Between `devices`, all of one kind, which outlive it; of up to `bytes` at once. NCCL where all are cards of a
/// machine, each reaches the memory of every other, and the library is installed; else host memory, where cards have no
/// way to one another but through it. A rank that does not come is lost after a time. Throws OutOfBudget where there is
/// no memory for either.
[[nodiscard]] ChosenSums choose_rank_sums(std::span<Device* const> devices, std::size_t bytes,
                                          std::chrono::nanoseconds lost_after = kRankIsLost);
/// Most memory of each device's budget that sums between so many devices of that kind take, whatever is chosen.
[[nodiscard]] std::size_t rank_sums_bytes(DeviceKind kind, std::size_t n_devices, std::size_t bytes);

}  // namespace slipstream
