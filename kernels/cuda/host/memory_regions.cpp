#include "kernels/cuda/host/memory_regions.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"

namespace slipstream::cuda {

namespace {

constexpr std::size_t kAlignBytes = 256;

}  // namespace

MemoryRegions::MemoryRegions(const Module& module, std::int32_t device, std::size_t piece_bytes)
    : module_(&module), device_(device), piece_bytes_(piece_bytes) {}

// Returns the smallest free block of at least `bytes`, or end().
MemoryRegions::Blocks::iterator MemoryRegions::best_free(std::size_t bytes) {
    auto best = blocks_.end();
    for (auto block = blocks_.begin(); block != blocks_.end(); ++block)
        if (!block->second.is_used && block->second.bytes >= bytes &&
            (best == blocks_.end() || block->second.bytes < best->second.bytes))
            best = block;
    return best;
}

Status MemoryRegions::take_region(std::size_t bytes, Blocks::iterator* block, ErrorText* error) {
    void* data = nullptr;
    const Status status = module_->allocate(device_, bytes, &data, error);
    if (status != Status::Ok) return status;
    auto* begin = static_cast<std::byte*>(data);
    *block = blocks_.emplace(begin, Block{.bytes = bytes, .region = begin}).first;
    figures_.taken_bytes += bytes;
    ++figures_.n_regions;
    return Status::Ok;
}

// Marks the first `bytes` of a block as used and makes the rest of it a free block.
void MemoryRegions::cut(Blocks::iterator block, std::size_t bytes) {
    Block& of = block->second;
    if (of.bytes > bytes) blocks_.emplace(block->first + bytes, Block{.bytes = of.bytes - bytes, .region = of.region});
    of.bytes = bytes;
    of.is_used = true;
    figures_.used_bytes += bytes;
}

Status MemoryRegions::allocate(std::size_t bytes, std::size_t expected_bytes, std::byte** data, ErrorText* error) {
    const std::scoped_lock lock(mutex_);
    const bool is_shared = piece_bytes_ > kAlignBytes;
    bytes = std::max<std::size_t>(bytes, 1);
    if (is_shared) bytes = round_up(bytes, kAlignBytes);
    auto block = is_shared ? best_free(bytes) : blocks_.end();
    if (block == blocks_.end()) {
        const std::size_t least = is_shared ? round_up(bytes, piece_bytes_) : bytes;
        std::size_t wanted = least;
        if (is_shared && bytes < kOwnRegionBytes)
            wanted = std::max(least, std::min(kSharedRegionBytes,
                                              round_up(std::min(expected_bytes, kSharedRegionBytes), piece_bytes_)));
        Status status = take_region(wanted, &block, error);
        if (status == Status::OutOfMemory && wanted > least) status = take_region(least, &block, error);
        if (status != Status::Ok) return status;
    }
    cut(block, bytes);
    *data = block->first;
    return Status::Ok;
}

void MemoryRegions::free(std::byte* data) noexcept {
    const std::scoped_lock lock(mutex_);
    auto block = blocks_.find(data);
    CHECK(block != blocks_.end() && block->second.is_used, "memory is freed that was not allocated");
    block->second.is_used = false;
    figures_.used_bytes -= block->second.bytes;
    const auto join_next = [&](Blocks::iterator left) {
        const auto right = std::next(left);
        if (right == blocks_.end() || right->second.is_used || right->second.region != left->second.region) return;
        left->second.bytes += right->second.bytes;
        blocks_.erase(right);
    };
    join_next(block);
    if (block != blocks_.begin()) {
        const auto left = std::prev(block);
        if (!left->second.is_used && left->second.region == block->second.region) {
            join_next(left);
            block = left;
        }
    }
    const auto next = std::next(block);
    const bool is_whole =
        block->first == block->second.region && (next == blocks_.end() || next->second.region != block->second.region);
    if (!is_whole) return;
    figures_.taken_bytes -= block->second.bytes;
    --figures_.n_regions;
    ErrorText ignored{};
    module_->free(device_, block->first, &ignored);
    blocks_.erase(block);
}

RegionFigures MemoryRegions::figures() const {
    const std::scoped_lock lock(mutex_);
    return figures_;
}

}  // namespace slipstream::cuda
