#include "offload/pinned_arena.h"

#include <algorithm>
#include <map>
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

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept {
    *this = std::move(other);
}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
    std::swap(arena_, other.arena_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(page_lock_, other.page_lock_);
    return *this;
}

PinnedBuffer::~PinnedBuffer() {
    if (arena_ != nullptr) arena_->give_back(*this);
}

struct PinnedArena::State {
    explicit State(const PinnedArenaOptions& options)
        : limit_bytes(options.limit_bytes),
          available_bytes(options.available_bytes ? options.available_bytes : [] { return available_host_bytes(); }),
          registers_with(options.page_lock == PageLock::Locked && options.device != nullptr &&
                                 !options.device->shares_host_memory()
                             ? options.device
                             : nullptr),
          pages(registers_with == nullptr ? options.page_lock : PageLock::Pageable),
          small(pages) {}

    const std::size_t limit_bytes;
    const std::function<std::size_t()> available_bytes;
    Device* const registers_with;  // registers pages, which locks them; null: the system alone locks pages
    HostPages pages;
    SmallHeap small;
    std::mutex mutex;  // protects all members below
    std::size_t used_bytes = 0;
    std::size_t peak_bytes = 0;
    std::size_t locked_bytes = 0;
    std::size_t credit_bytes = 0;                  // bytes that may be mapped before available_bytes() is called again
    std::map<std::byte*, std::size_t> registered;  // address and bytes of each registered range
    std::string refusal;                           // message about the first registration that was refused

    void take(std::size_t bytes, std::string_view what) {
        const std::scoped_lock lock(mutex);
        const std::size_t left = limit_bytes - used_bytes;
        if (bytes > left)
            throw OutOfBudget(fmt::format(
                "host memory: {} needs {}, but only {} of {} are left; use a larger --host-memory, a shorter "
                "--ctx or a smaller model",
                what, size_text(bytes), size_text(left), size_text(limit_bytes)));
        used_bytes += bytes;
    }

    [[nodiscard]] OutOfBudget has_no_more(std::size_t bytes, std::string_view what) const {
        return OutOfBudget(
            fmt::format("host memory: the system does not have {} for {}, in addition to {} in use here; close other "
                        "programs, or use a shorter --ctx or a smaller model (--host-memory sets the limit)",
                        size_text(bytes), what, size_text(used_bytes)));
    }

    // Returns the buffer at `placed`, whose `bytes` take() has counted as used. If `placed` is empty, takes them off
    // the count and throws OutOfBudget.
    PinnedBuffer hand_out(PinnedArena& arena, const SmallHeap::Block& placed, std::size_t bytes,
                          std::string_view what) {
        const std::scoped_lock lock(mutex);
        if (placed.data == nullptr) {
            used_bytes -= bytes;
            throw has_no_more(bytes, what);
        }
        peak_bytes = std::max(peak_bytes, used_bytes);
        if (placed.page_lock == PageLock::Locked && registers_with == nullptr) locked_bytes += bytes;
        return {&arena, placed.data, bytes, placed.page_lock};
    }

    // Whether the system has `bytes` left, which then count as gone. Linux kills processes that touch more memory than
    // there is, so the arena asks before it maps. Asking takes time, so half of what is left beyond `bytes` becomes a
    // credit, from which later calls are answered.
    bool system_has(std::size_t bytes) {
        const std::scoped_lock lock(mutex);
        if (bytes > credit_bytes) {
            const std::size_t available = available_bytes();
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
        const std::scoped_lock lock(mutex);
        if (refused.empty()) {
            registered[data] = bytes;
            locked_bytes += bytes;
            return PageLock::Locked;
        }
        if (refusal.empty())
            refusal = fmt::format(
                "host memory is pageable, not pinned, so copies from it are slower: {} did not register {} bytes in "
                "addition to {} ({}); use a smaller --host-memory, or free some memory",
                registers_with->name(), bytes, locked_bytes, refused);
        return PageLock::Pageable;
    }

    // Unregisters all registered ranges that begin in [data, data + bytes), and takes their bytes off locked_bytes.
    void unregister(std::byte* data, std::size_t bytes) {
        const std::scoped_lock lock(mutex);
        const auto begin = registered.lower_bound(data);
        auto end = begin;
        for (; end != registered.end() && end->first < data + bytes; ++end) {
            registers_with->unregister_host(end->first);
            locked_bytes -= end->second;
        }
        registered.erase(begin, end);
    }
};

PinnedArena::PinnedArena(const PinnedArenaOptions& options) : state_(std::make_unique<State>(options)) {}

PinnedArena::~PinnedArena() {
    CHECK(state_->used_bytes == 0, "{} bytes of host memory outlive their arena", state_->used_bytes);
}

PinnedBuffer PinnedArena::allocate(std::size_t bytes, std::string_view what) {
    if (bytes == 0) return {};
    state_->take(bytes, what);
    return state_->hand_out(*this, state_->place(bytes), bytes, what);
}

PinnedBuffer PinnedArena::reserve(std::size_t bytes, std::string_view what) {
    constexpr std::size_t kAlign = 2U << 20;  // bytes of a huge page
    if (bytes == 0) return {};
    State& state = *state_;
    state.take(bytes, what);
    SmallHeap::Block placed;
    if (bytes <= state.available_bytes()) placed.data = HostPages::reserve(bytes, kAlign);
    if (placed.data != nullptr && state.registers_with == nullptr)
        placed.page_lock = state.pages.lock_on_touch(placed.data, bytes);
    return state.hand_out(*this, placed, bytes, what);
}

void PinnedArena::bring(const PinnedBuffer& buffer, std::size_t from, std::size_t bytes, std::string_view what) {
    CHECK(from % HostPages::kPageBytes == 0 && from <= buffer.size_bytes() && bytes <= buffer.size_bytes() - from,
          "{} bytes from {} of {}", bytes, from, buffer.size_bytes());
    State& state = *state_;
    if (!state.system_has(bytes)) {
        const std::scoped_lock lock(state.mutex);
        throw state.has_no_more(bytes, what);
    }
    state.pages.touch(buffer.data() + from, round_up(bytes, HostPages::kPageBytes));
    if (state.registers_with != nullptr) state.register_pages(buffer.data() + from, bytes);
}

void PinnedArena::give_back(const PinnedBuffer& buffer) noexcept {
    State& state = *state_;
    if (state.small.holds(buffer.data())) {
        state.small.free(buffer.data());
    } else {
        if (state.registers_with != nullptr) state.unregister(buffer.data(), buffer.size_bytes());
        HostPages::unmap(buffer.data(), buffer.size_bytes());
    }
    const std::scoped_lock lock(state.mutex);
    state.used_bytes -= buffer.size_bytes();
    if (buffer.page_lock() == PageLock::Locked && state.registers_with == nullptr)
        state.locked_bytes -= buffer.size_bytes();
}

bool PinnedArena::registers() const {
    return state_->registers_with != nullptr;
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

std::string PinnedArena::lock_refusal() const {
    const std::scoped_lock lock(state_->mutex);
    return state_->refusal.empty() ? state_->pages.refusal() : state_->refusal;
}

}  // namespace slipstream
