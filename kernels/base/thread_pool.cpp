#include "kernels/base/thread_pool.h"

#include <algorithm>
#include <system_error>

#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "kernels/base/spin.h"

namespace slipstream {

ThreadPool::ThreadPool(int n_threads) {
    CHECK(n_threads >= 1 && n_threads <= 1024, "n_threads {}", n_threads);
    workers_.reserve(static_cast<std::size_t>(n_threads - 1));
    try {
        for (int i = 1; i < n_threads; ++i) workers_.emplace_back([this, i] { worker_loop(i); });
    } catch (const std::system_error& error) {
        const std::size_t started = workers_.size() + 1;
        stop();
        throw OutOfBudget(fmt::format("the system started only {} of {} threads ({}); use fewer (--threads)", started,
                                      n_threads, error.what()));
    }
}

ThreadPool::~ThreadPool() {
    stop();
}

void ThreadPool::stop() {
    stop_.store(true, std::memory_order_release);
    state_.fetch_add(kNextJob, std::memory_order_release);
    state_.notify_all();
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
    // The last job is closed and no worker is inside. This store opens the new job and publishes job_ and next_.
    const std::uint32_t previous = state_.load(std::memory_order_relaxed);
    state_.store(((previous & ~(kOpen | kInside)) + kNextJob) | kOpen, std::memory_order_release);
    state_.notify_all();
    take_pieces(0);
    std::uint32_t state = state_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
    for (int spins = 0; (state & kInside) != 0; ++spins) {
        if (spins < kSpins) {
            relax();
        } else {
            state_.wait(state, std::memory_order_acquire);
        }
        state = state_.load(std::memory_order_acquire);
    }
}

void ThreadPool::worker_loop(int thread) {
    std::uint32_t seen = 0;  // number of the last job that this worker entered
    for (int spins = 0;;) {
        std::uint32_t state = state_.load(std::memory_order_acquire);
        if (stop_.load(std::memory_order_acquire)) return;
        if ((state & kOpen) == 0 || state / kNextJob == seen) {
            if (spins++ < kSpins) {
                relax();
            } else {
                state_.wait(state, std::memory_order_acquire);
            }
            continue;
        }
        if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) continue;
        seen = state / kNextJob;
        take_pieces(thread);
        if ((state_.fetch_sub(1, std::memory_order_acq_rel) & (kOpen | kInside)) == 1) state_.notify_all();
        spins = 0;
    }
}

}  // namespace slipstream
