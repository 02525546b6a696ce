#include "kernels/base/thread_pool.h"

#include <algorithm>

#include "kernels/base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace slipstream {

namespace {

// About 20 us at 3 GHz: longer than the gap between two ops of a pass, shorter than a scheduler tick, so that a
// neighbour process gets the core while we wait for anything slow. Estimated; tuned by the kernels' bench.
constexpr int kSpins = 600;

void relax() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int n_threads) {
    CHECK(n_threads >= 1 && n_threads <= 1024, "n_threads {}", n_threads);
    workers_.reserve(static_cast<std::size_t>(n_threads - 1));
    for (int i = 1; i < n_threads; ++i) workers_.emplace_back([this, i] { worker_loop(i); });
}

ThreadPool::~ThreadPool() {
    stop_.store(true, std::memory_order_release);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::take_pieces(int thread) {
    const Job job = job_;
    for (;;) {
        const std::int64_t begin = next_.fetch_add(job.piece, std::memory_order_relaxed);
        if (begin >= job.n_items) return;
        (*job.fn)(begin, std::min(begin + job.piece, job.n_items), thread);
    }
}

void ThreadPool::run(std::int64_t n_items, std::int64_t piece, PieceFn fn) {
    CHECK(piece >= 1);
    if (n_items <= 0) return;
    if (workers_.empty() || n_items <= piece) {
        for (std::int64_t begin = 0; begin < n_items; begin += piece) fn(begin, std::min(begin + piece, n_items), 0);
        return;
    }
    job_ = {&fn, n_items, piece};
    next_.store(0, std::memory_order_relaxed);
    busy_workers_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);  // publishes job_, next_, busy_workers_
    generation_.notify_all();
    take_pieces(0);
    // A worker that has not woken yet still reads job_: wait for every one of them.
    for (int spins = 0;; ++spins) {
        const int busy = busy_workers_.load(std::memory_order_acquire);
        if (busy == 0) return;
        if (spins < kSpins) {
            relax();
        } else {
            busy_workers_.wait(busy, std::memory_order_acquire);
        }
    }
}

void ThreadPool::worker_loop(int thread) {
    std::uint32_t seen = 0;
    for (;;) {
        std::uint32_t now = generation_.load(std::memory_order_acquire);
        for (int spins = 0; now == seen; ++spins) {
            if (spins < kSpins) {
                relax();
            } else {
                generation_.wait(seen, std::memory_order_acquire);
            }
            now = generation_.load(std::memory_order_acquire);
        }
        if (stop_.load(std::memory_order_acquire)) return;
        seen = now;
        take_pieces(thread);
        if (busy_workers_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_workers_.notify_one();
    }
}

}  // namespace slipstream
