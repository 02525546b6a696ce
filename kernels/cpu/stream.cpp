#include "kernels/cpu/stream.h"

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "kernels/base/check.h"

namespace slipstream::cpu {

namespace {

class CpuEvent final : public Event {
public:
    [[nodiscard]] std::uint64_t recorded() const override { return recorded_.load(std::memory_order_acquire); }
    [[nodiscard]] std::uint64_t completed() const override { return completed_.load(std::memory_order_acquire); }
    std::uint64_t next_use() { return recorded_.fetch_add(1, std::memory_order_acq_rel) + 1; }
    void complete(std::uint64_t use) {
        completed_.store(use, std::memory_order_release);
        completed_.notify_all();
    }
    void block_until(std::uint64_t use) const {
        for (std::uint64_t done = completed(); done < use; done = completed())
            completed_.wait(done, std::memory_order_acquire);
    }

private:
    std::atomic<std::uint64_t> recorded_{0};
    std::atomic<std::uint64_t> completed_{0};
};

CpuEvent& as_cpu(Event& event) {
    return static_cast<CpuEvent&>(event);
}
const CpuEvent& as_cpu(const Event& event) {
    return static_cast<const CpuEvent&>(event);
}

void check_recorded(const Event& event, std::uint64_t use) {
    CHECK(use >= 1 && use <= event.recorded(), "wait for use {} of an event recorded {} times", use, event.recorded());
}

class ComputeStream final : public Stream {
public:
    void copy(void* dst, const void* src, std::size_t bytes) override {
        if (bytes > 0) std::memcpy(dst, src, bytes);
    }
    std::uint64_t record(Event& event) override {
        const std::uint64_t use = as_cpu(event).next_use();
        as_cpu(event).complete(use);
        return use;
    }
    void wait(const Event& event, std::uint64_t use) override {
        check_recorded(event, use);
        as_cpu(event).block_until(use);
    }
    void synchronize() override {}
};

class CopyStream final : public Stream {
public:
    CopyStream() : thread_([this] { run(); }) {}
    ~CopyStream() override {
        push({Task::Kind::Stop});
        thread_.join();
    }
    CopyStream(const CopyStream&) = delete;
    CopyStream& operator=(const CopyStream&) = delete;

    void copy(void* dst, const void* src, std::size_t bytes) override { push({Task::Kind::Copy, dst, src, bytes}); }
    std::uint64_t record(Event& event) override {
        const std::uint64_t use = as_cpu(event).next_use();
        push({Task::Kind::Complete, &as_cpu(event), nullptr, 0, use});
        return use;
    }
    void wait(const Event& event, std::uint64_t use) override {
        check_recorded(event, use);
        push({Task::Kind::Wait, nullptr, &as_cpu(event), 0, use});
    }
    void synchronize() override {
        std::unique_lock lock(mutex_);
        drained_.wait(lock, [this] { return head_ == tail_ && idle_; });
    }

private:
    struct Task {
        enum class Kind : std::uint8_t { Copy, Complete, Wait, Stop };
        Kind kind = Kind::Stop;
        void* target = nullptr;
        const void* source = nullptr;
        std::size_t bytes = 0;
        std::uint64_t use = 0;
    };

    void push(Task task) {
        std::unique_lock lock(mutex_);
        room_.wait(lock, [this] { return tail_ - head_ < queue_.size(); });
        queue_[tail_ % queue_.size()] = task;
        ++tail_;
        work_.notify_one();
    }

    void run() {
        for (;;) {
            Task task;
            {
                std::unique_lock lock(mutex_);
                idle_ = true;
                if (head_ == tail_) drained_.notify_all();
                work_.wait(lock, [this] { return head_ != tail_; });
                idle_ = false;
                task = queue_[head_ % queue_.size()];
                ++head_;
                room_.notify_one();
            }
            switch (task.kind) {
                case Task::Kind::Copy:
                    if (task.bytes > 0) std::memcpy(task.target, task.source, task.bytes);
                    break;
                case Task::Kind::Complete:
                    static_cast<CpuEvent*>(task.target)->complete(task.use);
                    break;
                case Task::Kind::Wait:
                    static_cast<const CpuEvent*>(task.source)->block_until(task.use);
                    break;
                case Task::Kind::Stop:
                    return;
            }
        }
    }

    std::mutex mutex_;
    std::condition_variable work_, room_, drained_;
    std::array<Task, 1024> queue_;
    std::size_t head_ = 0;  // tasks taken so far
    std::size_t tail_ = 0;  // tasks pushed so far
    bool idle_ = false;     // the thread is between tasks
    std::thread thread_;    // last: starts when all above is made
};

}  // namespace

std::unique_ptr<Stream> make_stream(StreamKind kind) {
    if (kind == StreamKind::Copy) return std::make_unique<CopyStream>();
    return std::make_unique<ComputeStream>();
}

std::unique_ptr<Event> make_event() {
    return std::make_unique<CpuEvent>();
}

}  // namespace slipstream::cpu
