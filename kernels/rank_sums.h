// The ways in which several devices can sum their parts, and the choice between them. Each way gives the same bits (two
// parts have the same sum in either order; more are added in the order of the ranks). So the choice never changes a
// text, and sessions do not store it.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "kernels/collective.h"
#include "kernels/rank_meeting.h"

namespace slipstream {

/// Sums over several devices, which are the ranks.
class RankSums {
public:
    virtual ~RankSums() = default;
    /// Returns the object on which a rank calls its sums; valid as long as this object.
    [[nodiscard]] virtual Collective& rank(std::size_t rank) = 0;
};

struct ChosenSums {
    std::unique_ptr<RankSums> sums;
    std::string way;      // the choice, in words: "NCCL 2.28.9", "host memory (NCCL is not installed)"
    std::string trouble;  // one line about NCCL, if it should have worked but failed; else empty
};
/// Chooses how to sum up to `bytes` at once over `devices`, which must be of one kind and outlive the result. Uses NCCL
/// if all are GPUs, each can access the memory of every other, and the library is installed and works; else host
/// memory. A rank that does not call within `lost_after` counts as lost. Throws OutOfBudget if there is no memory for
/// host memory sums.
[[nodiscard]] ChosenSums choose_rank_sums(std::span<Device* const> devices, std::size_t bytes,
                                          std::chrono::nanoseconds lost_after = kRankIsLost);
/// Returns the most bytes that sums of up to `bytes` take from the budget of each of `n_devices` devices of that kind,
/// whatever is chosen.
[[nodiscard]] std::size_t rank_sums_bytes(DeviceKind kind, std::size_t n_devices, std::size_t bytes);

}  // namespace slipstream
