#include "tests/cuda_emulation/card_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"

namespace slipstream::emulation {

namespace {

constexpr std::size_t kGuardBytes = 256;
constexpr std::size_t kHugePageBytes = 2U << 20;  // protected as one, where the system has it so
constexpr std::byte kGuard{0xa5};

}  // namespace

CardMemory::CardMemory(std::size_t bytes) : bytes_(round_up(bytes, std::size_t{4096})) {
    void* mapped = ::mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(mapped != MAP_FAILED, "no address space for {} bytes", bytes_);
    data_ = static_cast<std::byte*>(mapped);
    ::madvise(data_, bytes_, MADV_HUGEPAGE);
}

CardMemory::~CardMemory() {
    ::munmap(data_, bytes_);
}

void CardMemory::open(int protection) const {
    if (top_ > 0) CHECK(::mprotect(data_, top_, protection) == 0);
}

bool CardMemory::is_allocated(const void* at, std::size_t bytes) const {
    const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(at) - data_);
    auto block = blocks_.upper_bound(offset);
    if (block == blocks_.begin()) return false;
    --block;
    return offset + bytes <= block->first + block->second;
}

std::byte* CardMemory::allocate(std::size_t bytes) {
    std::size_t at = kGuardBytes;
    for (const auto& [begin, size] : blocks_) {
        if (begin >= at + bytes + kGuardBytes) break;
        at = round_up(begin + size + kGuardBytes, kGuardBytes);
    }
    if (at + bytes + kGuardBytes > bytes_ || bytes > bytes_) return nullptr;
    blocks_[at] = bytes;
    allocated_ += bytes;
    const std::size_t end = at + bytes + kGuardBytes;
    if (end > top_) {
        top_ = std::min(round_up(end, kHugePageBytes), bytes_);
        CHECK(::mprotect(data_, top_, PROT_READ | PROT_WRITE) == 0);
    }
    std::memset(data_ + at - kGuardBytes, static_cast<int>(kGuard), kGuardBytes);
    std::memset(data_ + at, static_cast<int>(kPoison), bytes);
    std::memset(data_ + at + bytes, static_cast<int>(kGuard), kGuardBytes);
    return data_ + at;
}

void CardMemory::free(std::byte* data) {
    const auto at = static_cast<std::size_t>(data - data_);
    const auto block = blocks_.find(at);
    CHECK(block != blocks_.end(), "memory is freed that was not allocated");
    const std::size_t bytes = block->second;
    const auto intact = [](std::byte value) { return value == kGuard; };
    CHECK(
        std::all_of(data - kGuardBytes, data, intact) && std::all_of(data + bytes, data + bytes + kGuardBytes, intact),
        "something wrote beside an allocation of {} bytes", bytes);
    std::memset(data, static_cast<int>(kPoison), bytes);
    allocated_ -= bytes;
    blocks_.erase(block);
}

}  // namespace slipstream::emulation
