// A host thread for each of several ranks that compute at the same time; the caller's is the first one's.
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
    /// `on_failure` is called once where a call throws, on its thread, so that those who wait for it hear of it. Throws
    /// OutOfBudget where the system starts no more threads.
    RankThreads(std::size_t n_ranks, std::function<void()> on_failure);
    ~RankThreads();
    RankThreads(const RankThreads&) = delete;
    RankThreads& operator=(const RankThreads&) = delete;

    /// Calls `call(rank)` for every rank at once, and returns when all have returned. Throws what was thrown first.
    void run(const std::function<void(std::size_t)>& call);

private:
    void work(std::size_t rank);
    void call_for(std::size_t rank) noexcept;
    void stop();

    std::function<void()> on_failure_;
    std::mutex mutex_;  // of all below
    std::condition_variable changed_;
    const std::function<void(std::size_t)>* call_ = nullptr;
    std::uint64_t n_runs_ = 0;
    std::size_t n_working_ = 0;  // beside the caller
    bool stopped_ = false;
    std::exception_ptr failure_;
    std::vector<std::thread> threads_;
};

}  // namespace slipstream
