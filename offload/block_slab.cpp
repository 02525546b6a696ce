#include "offload/block_slab.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"

namespace slipstream {

namespace {

constexpr std::size_t kAlignBytes = 64;
constexpr std::size_t kMaxGroupBytes = 16U << 20;
constexpr std::int64_t kGrowthShare = 16;  // a group is at most this part of what is held: 6 % too much at worst

}  // namespace

BlockSlab::BlockSlab(PinnedArena& arena, std::size_t block_bytes, std::int64_t max_blocks, std::string what)
    : arena_(&arena),
      block_bytes_(block_bytes),
      stride_bytes_(round_up(block_bytes, kAlignBytes)),
      max_blocks_(max_blocks),
      what_(std::move(what)) {
    CHECK(block_bytes > 0 && block_bytes <= std::numeric_limits<std::size_t>::max() / 2 && max_blocks >= 0,
          "a slab of {} blocks of {} bytes", max_blocks, block_bytes);
}

std::byte* BlockSlab::take() {
    if (free_.empty()) grow();
    std::byte* block = free_.back();
    free_.pop_back();
    Group& group = group_of(block);
    group.taken[index_in(group, block)] = true;
    ++n_taken_;
    return block;
}

void BlockSlab::give_back(std::byte* block) {
    Group& group = group_of(block);
    const std::size_t index = index_in(group, block);
    CHECK(group.taken[index], "a block of {} given back twice", what_);
    group.taken[index] = false;
    free_.push_back(block);
    --n_taken_;
}

void BlockSlab::grow() {
    if (n_held_ == max_blocks_)
        throw OutOfBudget(
            fmt::format("host memory: all {} blocks of {} are taken; ask for a shorter context", n_held_, what_));
    const auto most = static_cast<std::int64_t>(std::max(kMaxGroupBytes / stride_bytes_, std::size_t{1}));
    std::int64_t n = std::min({std::max(n_held_ / kGrowthShare, std::int64_t{1}), most, max_blocks_ - n_held_});
    Group group;
    for (;; n /= 2) {
        // The last block needs no padding behind it.
        const std::size_t bytes = static_cast<std::size_t>(n - 1) * stride_bytes_ + block_bytes_;
        try {
            group.memory = arena_->allocate(bytes, what_);
            break;
        } catch (const OutOfBudget&) {
            if (n == 1) throw;  // else the rest of the budget may hold fewer
        }
    }
    group.taken.assign(static_cast<std::size_t>(n), false);
    free_.reserve(static_cast<std::size_t>(n_held_ + n));
    for (std::int64_t i = n; i-- > 0;)  // taken from the back: in ascending order
        free_.push_back(group.memory.data() + static_cast<std::size_t>(i) * stride_bytes_);
    const auto behind = first_behind(group.memory.data());
    groups_.insert(behind, std::move(group));
    n_held_ += n;
}

std::vector<BlockSlab::Group>::iterator BlockSlab::first_behind(const std::byte* at) {
    return std::upper_bound(groups_.begin(), groups_.end(), at, [](const std::byte* address, const Group& group) {
        return std::less<>()(address, group.memory.data());
    });
}

std::size_t BlockSlab::index_in(const Group& group, const std::byte* block) const {
    return static_cast<std::size_t>(block - group.memory.data()) / stride_bytes_;
}

BlockSlab::Group& BlockSlab::group_of(const std::byte* block) {
    const auto behind = first_behind(block);
    CHECK(behind != groups_.begin(), "a block that {} does not hold", what_);
    Group& group = *std::prev(behind);
    const auto offset = static_cast<std::size_t>(block - group.memory.data());
    CHECK(offset < group.memory.size_bytes() && offset % stride_bytes_ == 0, "a block that {} does not hold", what_);
    return group;
}

}  // namespace slipstream
