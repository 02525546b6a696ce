// Suballocates a GPU's memory from few driver allocations. The driver rounds every allocation up to 2 MiB. A model of
// 80 layers, each with its weights, its extents of KV and its norms, would take hundreds of MiB more than its memory
// budget counts. So small blocks share regions. A large block has a region of its own, of its size rounded up, and
// small blocks may use the rest of it.
//
// A region is returned to the driver when its last block is freed. If the driver does not round up (the emulated
// machine, which places guards next to each block), every block is an allocation of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "kernels/cuda/module_api.h"

namespace slipstream::cuda {

/// Size in bytes from which a block gets a region of its own: from 8 MiB on, rounding up to 2 MiB adds less than a
/// quarter.
inline constexpr std::size_t kOwnRegionBytes = std::size_t{8} << 20;
/// Most bytes of a region that smaller blocks share; it is less if the device will need less in all.
inline constexpr std::size_t kSharedRegionBytes = std::size_t{32} << 20;

/// Memory of a device's regions at present.
struct RegionFigures {
    std::size_t taken_bytes = 0;  // bytes of all regions, as the driver counts
    std::size_t used_bytes = 0;   // bytes of all blocks in use
    std::int64_t n_regions = 0;
};

/// Allocates and frees blocks of one device's memory. All functions may be called from any thread.
class MemoryRegions {
public:
    /// `module` must outlive this object. `piece_bytes`: the unit to which the driver rounds allocations up
    /// (DeviceProperties::allocation_bytes).
    MemoryRegions(const Module& module, std::int32_t device, std::size_t piece_bytes);
    MemoryRegions(const MemoryRegions&) = delete;
    MemoryRegions& operator=(const MemoryRegions&) = delete;

    /// Allocates a block of `bytes`, aligned to 256 bytes, with undefined contents, and sets *data. `expected_bytes`:
    /// the most that the caller may still allocate in all, this block included; a region that blocks share is not made
    /// larger. Returns the driver's status; if it is not Ok, *data is unchanged and *error has the reason.
    [[nodiscard]] Status allocate(std::size_t bytes, std::size_t expected_bytes, std::byte** data, ErrorText* error);
    /// Frees a block; `data` must come from allocate() (CHECKed). No stream may still use the block.
    void free(std::byte* data) noexcept;

    [[nodiscard]] RegionFigures figures() const;

private:
    struct Block {
        std::size_t bytes = 0;
        std::byte* region = nullptr;  // start of the region
        bool is_used = false;
    };
    using Blocks = std::map<std::byte*, Block>;  // blocks by their begin; those of a region have no gaps between them

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
