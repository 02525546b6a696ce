// Sums over cards that reach one another's memory, by NCCL: its kernels move the parts from card to card, and wait
// there for those of the other ranks.
//
// Two ranks sum up by NCCL's own all-reduce: two terms have one sum in either order. Of three and more the order would
// follow from the message's size and the machine (E1), so NCCL only gathers the parts, and each card adds them up in
// the order of the ranks.
//
// A kernel that waits for one that never comes would hold its card for good, and calls that take or lock memory wait
// for all kernels of all cards that reach one another. So nothing is enqueued before all ranks have called; then the
// one who came last enqueues for all of them, in one call of the module, which lets no other thread take memory
// meanwhile. What fails in it is thrown by the rank that it is of. Kernels that wait all the same are ended by abort().
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/host/cuda_device.h"
#include "kernels/rank_sums.h"

namespace slipstream {

/// 22809 as "2.28.9".
[[nodiscard]] std::string nccl_version_text(std::int64_t version);

class NcclSums final : public RankSums {
public:
    /// Between `cards`, a rank each, no card twice, of one module (CHECKed), which outlive this; of up to `bytes` at
    /// once. NCCL takes memory of its own, which no budget counts: it lies in what a budget leaves free on the card
    /// (kCardMarginBytes). Throws CudaError where NCCL does not serve them, OutOfBudget.
    NcclSums(std::span<CudaDevice* const> cards, std::size_t bytes, std::chrono::nanoseconds lost_after = kRankIsLost);
    ~NcclSums() override;
    NcclSums(const NcclSums&) = delete;
    NcclSums& operator=(const NcclSums&) = delete;

    [[nodiscard]] Collective& rank(std::size_t rank) override;
    /// What it takes of each card's budget.
    [[nodiscard]] static std::size_t device_bytes(std::size_t n_ranks, std::size_t bytes);

private:
    class Rank;
    enum class Way : std::uint8_t { Sum, Gather };

    using Function = cuda::Status (*)(std::int32_t n_ranks, const cuda::RankPart* parts, std::size_t n_floats,
                                      std::int32_t* failed, cuda::ErrorText* error);

    void make_communicators();
    void try_one();
    [[nodiscard]] Function function_of(Way way) const;
    [[nodiscard]] std::string failure_text(std::int32_t rank, const cuda::ErrorText& error) const;
    void meet(const Rank& rank, Way way);
    void enqueue(const Rank& last, Way way);
    [[nodiscard]] std::string missing(std::uint64_t call) const;
    void abort() noexcept;
    void restart();

    const cuda::Module* module_;
    std::size_t bytes_;
    RankMeeting meeting_;
    std::vector<std::unique_ptr<Rank>> ranks_;
    std::atomic<std::uint64_t> n_arrivals_{0};  // of all ranks together
    std::atomic<std::uint64_t> enqueued_{0};    // calls that all ranks have behind them
    std::atomic<int> failed_{-1};               // the rank whose part of a call failed; -1: none
    std::string failure_;                       // in words, set before failed_
    std::timed_mutex call_;                     // while NCCL is called
    std::mutex mutex_;                          // of the next two
    std::vector<void*> communicators_;          // [ranks]; empty: aborted, or not made
    std::string none_;                          // why there are none
};

}  // namespace slipstream
