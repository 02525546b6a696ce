// A thread that runs tasks one after the other.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace slipstream::tools {

class Worker {
public:
    Worker() : thread_([this] { run(); }) {}
    ~Worker() { stop(); }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    /// `task` must not throw. Returns false after stop(): the task is then not run.
    [[nodiscard]] bool add(std::function<void()> task) {
        const std::lock_guard lock(mutex_);
        if (ends_) return false;
        tasks_.push_back(std::move(task));
        changed_.notify_all();
        return true;
    }
    /// Runs the tasks that are left, then ends the thread. Not by two threads at the same time.
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

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> tasks_;
    bool ends_ = false;
    std::thread thread_;  // last: it uses the others
};

}  // namespace slipstream::tools
