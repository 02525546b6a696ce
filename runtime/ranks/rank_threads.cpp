#include "runtime/ranks/rank_threads.h"

#include <new>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/error.h"

namespace slipstream {

RankThreads::RankThreads(std::size_t n_ranks, std::function<void()> on_failure) : on_failure_(std::move(on_failure)) {
    CHECK(n_ranks >= 1);
    threads_.reserve(n_ranks - 1);
    try {
        for (std::size_t rank = 1; rank < n_ranks; ++rank) threads_.emplace_back([this, rank] { work(rank); });
    } catch (const std::bad_alloc&) {
        stop();
        throw OutOfBudget("no memory for the threads of several devices");
    } catch (const std::system_error& error) {
        stop();
        throw OutOfBudget(fmt::format("the system starts no thread for device {} of {} ({}); name fewer devices",
                                      threads_.size() + 2, n_ranks, error.what()));
    }
}

RankThreads::~RankThreads() {
    stop();
}

void RankThreads::stop() {
    {
        const std::scoped_lock lock(mutex_);
        stopped_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void RankThreads::run(const std::function<void(std::size_t)>& call) {
    {
        const std::scoped_lock lock(mutex_);
        CHECK(n_working_ == 0, "a run in another one");
        call_ = &call;
        n_working_ = threads_.size();
        ++n_runs_;
    }
    changed_.notify_all();
    call_for(0);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return n_working_ == 0; });
    call_ = nullptr;
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void RankThreads::call_for(std::size_t rank) noexcept {
    try {
        (*call_)(rank);
    } catch (...) {
        bool is_first = false;
        {
            const std::scoped_lock lock(mutex_);
            is_first = !failure_;
            if (is_first) failure_ = std::current_exception();
        }
        if (is_first) on_failure_();
    }
}

void RankThreads::work(std::size_t rank) {
    std::uint64_t n_done = 0;
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [&] { return stopped_ || n_runs_ > n_done; });
        if (stopped_) return;
        n_done = n_runs_;
        lock.unlock();
        call_for(rank);
        lock.lock();
        if (--n_working_ == 0) changed_.notify_all();
    }
}

}  // namespace slipstream
