// A thread that runs tasks one after the other.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace slipstream::tools {

class Worker {
public:
    /// Starts the thread. add() refuses tasks while `most_waiting` of them wait.
    explicit Worker(std::size_t most_waiting) : most_waiting_(most_waiting), thread_([this] { run(); }) {}
    ~Worker() { stop(); }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    enum class Added : std::uint8_t {
        Yes,
        Full,   // too many tasks wait: the task is not run
        Ended,  // after stop(): the task is not run
    };
    /// Queues a task, which must not throw. Returns whether it will be run.
    [[nodiscard]] Added add(std::function<void()> task) {
        const std::lock_guard lock(mutex_);
        if (ends_) return Added::Ended;
        if (tasks_.size() >= most_waiting_) return Added::Full;
        tasks_.push_back(std::move(task));
        changed_.notify_all();
        return Added::Yes;
    }
    [[nodiscard]] std::size_t most_waiting() const { return most_waiting_; }
    /// Runs the tasks that are left, then ends the thread. Two threads must not call it at the same time.
    void stop() {
        {
            const std::lock_guard lock(mutex_);
            ends_ = true;
            changed_.notify_all();
        }
        if (thread_.joinable()) thread_.join();
    }

private:
    void run() {
        std::unique_lock lock(mutex_);
        while (true) {
            changed_.wait(lock, [&] { return ends_ || !tasks_.empty(); });
            if (tasks_.empty()) return;
            {
                const std::function<void()> task = std::move(tasks_.front());
                tasks_.pop_front();
                lock.unlock();
                task();
            }
            lock.lock();
        }
    }

    std::size_t most_waiting_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> tasks_;
    bool ends_ = false;
    std::thread thread_;  // last member, since it uses the others
};

}  // namespace slipstream::tools
