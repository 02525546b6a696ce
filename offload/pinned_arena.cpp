#include "offload/pinned_arena.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "kernels/base/size_text.h"
#include "kernels/device.h"
#include "offload/host_memory.h"
#include "offload/small_heap.h"

namespace slipstream {

HostBlock::HostBlock(HostBlock&& other) noexcept {
    *this = std::move(other);
}

HostBlock& HostBlock::operator=(HostBlock&& other) noexcept {
    std::swap(arena_, other.arena_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(page_lock_, other.page_lock_);
    return *this;
}

HostBlock::~HostBlock() {
    if (arena_ != nullptr) arena_->give_back(*this);
}

struct PinnedArena::State {
    explicit State(const PinnedArenaOptions& options)
        : limit_bytes(options.limit_bytes),
          registers_with(options.page_lock == PageLock::Locked && options.device != nullptr &&
                                 !options.device->shares_host_memory()
                             ? options.device
                             : nullptr),
          pages(registers_with == nullptr ? options.page_lock : PageLock::Pageable),
          small(pages) {}

    const std::size_t limit_bytes;
    Device* const registers_with;  // null: pages are locked by the system alone
    HostPages pages;
    SmallHeap small;
    std::mutex mutex;  // of all below
    std::size_t used_bytes = 0;
    std::size_t peak_bytes = 0;
    std::size_t locked_bytes = 0;
    std::size_t credit_bytes = 0;  // may be mapped before the system is asked again how much it has
    std::string refusal;           // of the first registration that was refused

    // The system ends processes that touch more than there is, so mappings ask first; not each, since that takes a
    // while.
    bool system_has(std::size_t bytes) {
        const std::scoped_lock lock(mutex);
        if (bytes > credit_bytes) {
            const std::size_t available = available_host_bytes();
            if (bytes > available) return false;
            credit_bytes = bytes + (available - bytes) / 2;
        }
        credit_bytes -= bytes;
        return true;
    }

    SmallHeap::Block place(std::size_t bytes) {
        if (bytes < kMapFromBytes && registers_with == nullptr) {
            const SmallHeap::Block block = small.allocate(bytes);
            if (block.data != nullptr) return block;
        }
        std::byte* data = system_has(bytes) ? HostPages::map(bytes) : nullptr;
        if (data == nullptr) return {};
        const PageLock page_lock = pages.prepare(data, bytes);
        return {data, registers_with == nullptr ? page_lock : register_pages(data, bytes)};
    }

    PageLock register_pages(std::byte* data, std::size_t bytes) {
        const std::string refused = registers_with->register_host(data, round_up(bytes, HostPages::kPageBytes));
        if (refused.empty()) return PageLock::Locked;
        const std::scoped_lock lock(mutex);
        if (refusal.empty())
            refusal = fmt::format(
                "host memory is pageable and copies from it are slower: {} did not register {} more bytes beside {} "
                "({}); lower --host-memory, or free some memory",
                registers_with->name(), bytes, locked_bytes, refused);
        return PageLock::Pageable;
    }
};

PinnedArena::PinnedArena(const PinnedArenaOptions& options) : state_(std::make_unique<State>(options)) {}

PinnedArena::~PinnedArena() {
    CHECK(state_->used_bytes == 0, "{} bytes of host memory outlive their arena", state_->used_bytes);
}

HostBlock PinnedArena::allocate(std::size_t bytes, std::string_view what) {
    if (bytes == 0) return {};
    State& state = *state_;
    {
        const std::scoped_lock lock(state.mutex);
        const std::size_t left = state.limit_bytes - state.used_bytes;
        if (bytes > left)
            throw OutOfBudget(
                fmt::format("host memory: {} needs {}, {} of {} are left; give more by --host-memory, or ask for a "
                            "shorter --ctx or a smaller model",
                            what, size_text(bytes), size_text(left), size_text(state.limit_bytes)));
        state.used_bytes += bytes;
    }
    const SmallHeap::Block placed = state.place(bytes);
    const std::scoped_lock lock(state.mutex);
    if (placed.data == nullptr) {
        state.used_bytes -= bytes;
        throw OutOfBudget(
            fmt::format("host memory: the system has no {} bytes more for {}, beside {} in use here; close other "
                        "programs, or ask for a shorter context or a smaller model (--host-memory sets the limit)",
                        bytes, what, state.used_bytes));
    }
    state.peak_bytes = std::max(state.peak_bytes, state.used_bytes);
    if (placed.page_lock == PageLock::Locked) state.locked_bytes += bytes;
    return {this, placed.data, bytes, placed.page_lock};
}

void PinnedArena::give_back(const HostBlock& block) noexcept {
    State& state = *state_;
    if (state.small.holds(block.data())) {
        state.small.free(block.data());
    } else {
        if (state.registers_with != nullptr && block.page_lock() == PageLock::Locked)
            state.registers_with->unregister_host(block.data());
        HostPages::unmap(block.data(), block.size_bytes());
    }
    const std::scoped_lock lock(state.mutex);
    state.used_bytes -= block.size_bytes();
    if (block.page_lock() == PageLock::Locked) state.locked_bytes -= block.size_bytes();
}

std::size_t PinnedArena::limit_bytes() const {
    return state_->limit_bytes;
}

std::size_t PinnedArena::used_bytes() const {
    const std::scoped_lock lock(state_->mutex);
    return state_->used_bytes;
}

std::size_t PinnedArena::peak_bytes() const {
    const std::scoped_lock lock(state_->mutex);
    return state_->peak_bytes;
}

std::size_t PinnedArena::locked_bytes() const {
    const std::scoped_lock lock(state_->mutex);
    return state_->locked_bytes;
}

const std::string& PinnedArena::lock_refusal() const {
    return state_->refusal.empty() ? state_->pages.refusal() : state_->refusal;
}

}  // namespace slipstream
