// Blocks of one size out of a pinned arena, taken one by one as a text grows, given back at once and used again.
//
// Blocks come from the arena in groups: one at a time first, then a sixteenth of what there is, up to 16 MiB; so many
// small blocks cost few allocations, and never much more memory is held than taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "offload/pinned_arena.h"

namespace slipstream {

class BlockSlab {
public:
    /// Up to `max_blocks` of `block_bytes` (> 0) each; `what` names them in errors. Nothing is allocated yet. The arena
    /// must outlive the slab.
    BlockSlab(PinnedArena& arena, std::size_t block_bytes, std::int64_t max_blocks, std::string what);

    /// 64-byte aligned, undefined contents; the block given back last first. Throws OutOfBudget; what was taken before
    /// stays good.
    [[nodiscard]] std::byte* take();
    /// A block that take() gave and that was not given back since (CHECK). Allocates nothing.
    void give_back(std::byte* block);

    [[nodiscard]] std::size_t block_bytes() const { return block_bytes_; }
    [[nodiscard]] std::int64_t n_taken() const { return n_taken_; }
    /// Blocks that the arena has given so far, taken or not; they stay with the slab.
    [[nodiscard]] std::int64_t n_held() const { return n_held_; }

private:
    struct Group {
        HostBlock memory;
        std::vector<bool> taken;  // of each block
    };
    void grow();
    // The first group that begins behind an address.
    [[nodiscard]] std::vector<Group>::iterator first_behind(const std::byte* at);
    // Index of a block in the group that holds it.
    [[nodiscard]] std::size_t index_in(const Group& group, const std::byte* block) const;
    [[nodiscard]] Group& group_of(const std::byte* block);

    PinnedArena* arena_;
    std::size_t block_bytes_;
    std::size_t stride_bytes_;  // from block to block in a group
    std::int64_t max_blocks_;
    std::string what_;
    std::vector<Group> groups_;     // by ascending address
    std::vector<std::byte*> free_;  // room for all blocks held
    std::int64_t n_held_ = 0;
    std::int64_t n_taken_ = 0;
};

}  // namespace slipstream
