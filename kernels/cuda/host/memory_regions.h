// A card's memory in few allocations. The driver gives memory in pieces of 2 MiB, whatever is asked for: a model of 80
// layers, each with its weights, its extents of KV and its share of norms, would take hundreds of MiB more than its
// budget counts. So what is small shares regions, what is large has one of its own size rounded up to such pieces, and
// what the rounding leaves over is given to the small.
//
// A region goes back to the driver with its last block. Where the driver takes no more than it is asked for (the
// emulated machine, so that guards stand beside each block) every block is an allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "kernels/cuda/module_api.h"

namespace slipstream::cuda {

/// Blocks of this size and more have a region to themselves.
inline constexpr std::size_t kOwnRegionBytes = std::size_t{8} << 20;
/// What others share, at most.
inline constexpr std::size_t kSharedRegionBytes = std::size_t{32} << 20;

struct RegionFigures {
    std::size_t taken_bytes = 0;  // by regions, as the driver counts
    std::size_t used_bytes = 0;   // by blocks
    std::int64_t n_regions = 0;
};

class MemoryRegions {
public:
    /// `piece_bytes`: what the driver rounds up to (DeviceProperties::allocation_bytes).
    MemoryRegions(const Module& module, std::int32_t device, std::size_t piece_bytes);
    MemoryRegions(const MemoryRegions&) = delete;
    MemoryRegions& operator=(const MemoryRegions&) = delete;

    /// `bytes` aligned to 256, undefined. `expected_bytes`: how much more may be asked for in all, these included; a
    /// region is no larger. From any thread, as free().
    [[nodiscard]] Status allocate(std::size_t bytes, std::size_t expected_bytes, std::byte** data, ErrorText* error);
    void free(std::byte* data) noexcept;

    [[nodiscard]] RegionFigures figures() const;

private:
    struct Block {
        std::size_t bytes = 0;
        std::byte* region = nullptr;  // its begin
        bool is_used = false;
    };
    using Blocks = std::map<std::byte*, Block>;  // by begin; regions without gaps

    [[nodiscard]] Blocks::iterator best_free(std::size_t bytes);
    [[nodiscard]] Status take_region(std::size_t bytes, Blocks::iterator* block, ErrorText* error);
    void cut(Blocks::iterator block, std::size_t bytes);

    const Module* module_;
    std::int32_t device_;
    std::size_t piece_bytes_;
    mutable std::mutex mutex_;
    Blocks blocks_;
    RegionFigures figures_;
};

}  // namespace slipstream::cuda
