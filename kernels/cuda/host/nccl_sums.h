// Sums over GPUs that can access each other's memory, by NCCL: its kernels copy the parts between GPUs and wait, on the
// GPU, for those of the other ranks.
//
// Two ranks use NCCL's all-reduce: two terms have the same sum in either order. With three or more, the order would
// depend on the message's size and the machine, against batch invariance (E1). So NCCL only gathers the parts, and each
// GPU adds them in the order of the ranks.
//
// A kernel that waits for another rank's kernel which never comes would block its GPU for good, and calls that allocate
// or lock memory wait for all kernels of all GPUs that can access each other. So nothing is enqueued before all ranks
// have called. Then the last one to call enqueues for all of them, in one call of the module, which lets no other
// thread allocate memory meanwhile. If the part of one rank fails in it, that rank throws. Kernels that wait all the
// same are ended by abort().
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

/// Returns an NCCL version as text: "2.28.9" for 22809.
[[nodiscard]] std::string nccl_version_text(std::int64_t version);

class NcclSums final : public RankSums {
public:
    /// Sums between `cards`, one rank each, which must be different, of one module (CHECKed), and outlive this object;
    /// up to `bytes` bytes per sum. NCCL allocates memory of its own, which no budget counts: it comes from what a
    /// memory budget leaves free on the GPU (kCardMarginBytes). `lost_after`: how long a rank waits for another one.
    /// Throws CudaError if NCCL does not work with these GPUs, OutOfBudget.
    NcclSums(std::span<CudaDevice* const> cards, std::size_t bytes, std::chrono::nanoseconds lost_after = kRankIsLost);
    ~NcclSums() override;
    NcclSums(const NcclSums&) = delete;
    NcclSums& operator=(const NcclSums&) = delete;

    [[nodiscard]] Collective& rank(std::size_t rank) override;
    /// Returns the bytes that sums of up to `bytes` over `n_ranks` GPUs take from the memory budget of each.
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
    std::atomic<std::uint64_t> n_arrivals_{0};  // calls of all ranks together
    std::atomic<std::uint64_t> enqueued_{0};    // calls that have been enqueued for all ranks
    std::atomic<int> failed_{-1};               // rank whose part of a call failed; -1: none
    std::string failure_;                       // why the part of rank failed_ failed; set before failed_
    std::timed_mutex call_;                     // held while NCCL is called
    std::mutex mutex_;                          // guards communicators_ and none_
    std::vector<void*> communicators_;          // [ranks]; empty: aborted, or not made
    std::string none_;                          // why there are no communicators
};

}  // namespace slipstream
