#include "offload/small_heap.h"

#include <mimalloc.h>

#include <condition_variable>
#include <exception>
#include <functional>
#include <optional>
#include <thread>

namespace slipstream {

namespace {

constexpr std::size_t kSegmentBytes = 32U << 20;  // segment of mimalloc 2, which crashes on an arena not aligned to it
constexpr std::size_t kBlockAlignment = 64;

struct Range {
    mi_arena_id_t arena;
    std::byte* begin;
};

// Ranges that no heap uses at present. Process-wide, because mimalloc's list of arenas is.
class IdleRanges {
public:
    std::optional<Range> take() {
        {
            const std::scoped_lock lock(mutex_);
            if (!ranges_.empty()) {
                const Range range = ranges_.back();
                ranges_.pop_back();
                return range;
            }
        }
        std::byte* begin = HostPages::reserve(SmallHeap::kRangeBytes, kSegmentBytes);
        if (begin == nullptr) return std::nullopt;
        Range range{.arena = 0, .begin = begin};
        // is_committed: mimalloc then never returns pages of the range, which are locked. Not is_large: mimalloc takes
        // the first segment of a thread from no arena that is large.
        if (mi_manage_os_memory_ex(begin, SmallHeap::kRangeBytes, /*is_committed=*/true, /*is_large=*/false,
                                   /*is_zero=*/true, /*numa_node=*/-1, /*exclusive=*/true, &range.arena))
            return range;
        HostPages::unmap(begin, SmallHeap::kRangeBytes);
        return std::nullopt;
    }
    void give_back(const Range& range) {
        HostPages::drop(range.begin, SmallHeap::kRangeBytes);
        const std::scoped_lock lock(mutex_);
        ranges_.push_back(range);
    }

private:
    std::mutex mutex_;
    std::vector<Range> ranges_;
};

IdleRanges& idle_ranges() {
    static IdleRanges ranges;
    return ranges;
}

}  // namespace

// Owns a mimalloc heap and its thread. A call writes its request and waits for the answer; the mutex of SmallHeap lets
// in one call at a time.
class SmallHeap::Worker {
public:
    explicit Worker(const Range& range) : range_(range), thread_([this] { run(); }) {}
    ~Worker() {
        ask({Request::Kind::Stop});
        thread_.join();
        idle_ranges().give_back(range_);
    }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    std::byte* allocate(std::size_t bytes) { return ask({Request::Kind::Allocate, nullptr, bytes}); }
    void free(std::byte* block) { ask({Request::Kind::Free, block}); }
    [[nodiscard]] std::byte* begin() const { return range_.begin; }

private:
    struct Request {
        enum class Kind : std::uint8_t { None, Allocate, Free, Stop };
        Kind kind = Kind::None;
        std::byte* block = nullptr;
        std::size_t bytes = 0;
    };

    std::byte* ask(const Request& request) {
        std::unique_lock lock(mutex_);
        request_ = request;
        asked_.notify_one();
        answered_.wait(lock, [this] { return request_.kind == Request::Kind::None; });
        return answer_;
    }

    void run() {
        mi_heap_t* heap = mi_heap_new_in_arena(range_.arena);
        std::unique_lock lock(mutex_);
        for (bool stopped = false; !stopped;) {
            asked_.wait(lock, [this] { return request_.kind != Request::Kind::None; });
            answer_ = nullptr;
            switch (request_.kind) {
                case Request::Kind::Allocate:
                    if (heap != nullptr)
                        answer_ =
                            static_cast<std::byte*>(mi_heap_malloc_aligned(heap, request_.bytes, kBlockAlignment));
                    break;
                case Request::Kind::Free:
                    mi_free(request_.block);
                    break;
                case Request::Kind::Stop:
                    if (heap != nullptr) mi_heap_destroy(heap);
                    stopped = true;
                    break;
                case Request::Kind::None:
                    break;
            }
            request_.kind = Request::Kind::None;
            answered_.notify_one();
        }
    }

    Range range_;
    std::mutex mutex_;
    std::condition_variable asked_, answered_;
    Request request_;
    std::byte* answer_ = nullptr;
    std::thread thread_;  // the last member, since it uses the others from its start
};

SmallHeap::SmallHeap(HostPages& pages) : pages_(&pages) {}

SmallHeap::~SmallHeap() = default;

void SmallHeap::start() {
    const std::optional<Range> range = idle_ranges().take();
    unavailable_ = !range;
    if (!range) return;
    try {
        page_states_.assign(kRangeBytes / HostPages::kPageBytes, PageState::Untouched);
        worker_ = std::make_unique<Worker>(*range);
    } catch (const std::exception&) {  // no thread or no memory: the arena then maps small buffers, too
        idle_ranges().give_back(*range);
        unavailable_ = true;
    }
}

SmallHeap::Block SmallHeap::allocate(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    if (!worker_ && !unavailable_) start();
    if (!worker_) return {};
    std::byte* data = worker_->allocate(bytes);
    if (data == nullptr) return {};
    return {data, prepare(data, bytes)};
}

// Prepares (HostPages) those pages of a new buffer that no earlier buffer used, one run of pages at a time. Returns
// Locked if all pages of the buffer are locked.
PageLock SmallHeap::prepare(std::byte* data, std::size_t bytes) {
    const auto offset = static_cast<std::size_t>(data - worker_->begin());
    const std::size_t end = (offset + bytes - 1) / HostPages::kPageBytes + 1;
    PageLock page_lock = PageLock::Locked;
    for (std::size_t page = offset / HostPages::kPageBytes; page < end;) {
        std::size_t run_end = page;
        while (run_end < end && page_states_[run_end] == PageState::Untouched) ++run_end;
        if (run_end > page) {
            const PageLock made = pages_->prepare(worker_->begin() + page * HostPages::kPageBytes,
                                                  (run_end - page) * HostPages::kPageBytes);
            const PageState state = made == PageLock::Locked ? PageState::Locked : PageState::Pageable;
            for (std::size_t i = page; i < run_end; ++i) page_states_[i] = state;
        } else {
            run_end = page + 1;
        }
        if (page_states_[page] != PageState::Locked) page_lock = PageLock::Pageable;
        page = run_end;
    }
    return page_lock;
}

void SmallHeap::free(std::byte* block) noexcept {
    const std::scoped_lock lock(mutex_);
    worker_->free(block);
}

bool SmallHeap::holds(const std::byte* block) const {
    const std::scoped_lock lock(mutex_);
    return worker_ && std::less_equal<>()(worker_->begin(), block) &&
           std::less<>()(block, worker_->begin() + kRangeBytes);
}

}  // namespace slipstream
