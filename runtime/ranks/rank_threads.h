// One host thread per rank, for ranks that compute at the same time. Rank 0 runs on the caller's thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace slipstream {

class RankThreads {
public:
    /// `on_failure` is called once per run if a call throws, on the thread of the first failure, so that it can wake
    /// ranks that wait for the failed one. Throws OutOfBudget if the system starts no more threads.
    RankThreads(std::size_t n_ranks, std::function<void()> on_failure);
    ~RankThreads();
    RankThreads(const RankThreads&) = delete;
    RankThreads& operator=(const RankThreads&) = delete;

    /// Calls `call(rank)` for every rank at the same time, and returns when all calls have returned. Throws the first
    /// error.
    void run(const std::function<void(std::size_t)>& call);

private:
    void work(std::size_t rank);
    void call_for(std::size_t rank) noexcept;
    void stop();

    std::function<void()> on_failure_;
    std::mutex mutex_;  // guards all members below
    std::condition_variable changed_;
    const std::function<void(std::size_t)>* call_ = nullptr;
    std::uint64_t n_runs_ = 0;
    std::size_t n_working_ = 0;  // threads other than the caller's
    bool stopped_ = false;
    std::exception_ptr failure_;
    std::vector<std::thread> threads_;
};

}  // namespace slipstream
