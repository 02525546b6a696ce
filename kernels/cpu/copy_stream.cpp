// Asynchronous copies of a CPU device: a thread takes tasks from a queue of fixed size, in order.
//
// The thread copies all bytes of a copy as soon as its turn on the link begins, and then waits until the turn is over.
// No code may read the target before the event recorded after the copy, so it does not matter when within the turn the
// bytes move. Early is best: the time that memory takes is hidden in the time of the link, and a thread that loses its
// core for a while has the rest of the turn to catch up. (Rejected: copying in several steps along the turn. Each step
// needs one more wake-up, and if the last wake-up is late, so is the copy.)
//
// After a failure, copies are skipped and events carry the failure, until synchronize() has thrown it. If a stream
// waits for another stream's use that carries a failure, it takes over the failure: the bytes to copy are missing.
//
// Every wait for this thread ends, since each of its copies ends: with its turn on the link; as a failure once it has
// stalled for CpuFaults::stall_after; or early if the program is asked to stop. The thread itself counts the time of a
// stall, so that copies of several devices that stall together fail together, in whatever order they are waited for. It
// counts in slices, so that the time for which the program was suspended (Ctrl-Z) does not count.
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/cpu/event.h"
#include "kernels/cpu/link_clock.h"
#include "kernels/cpu/stream.h"

namespace slipstream::cpu {

namespace {

// Asks the scheduler to prefer the calling thread. The copy engine of a GPU needs no core, but the thread that emulates
// it needs a share of one (0.3 at 2 GiB/s, measured). Without priority it copies less than the link carries if there
// are more busy threads than cores. If the system refuses the priority (RLIMIT_NICE), the thread runs without it, which
// is enough on a machine that is not overloaded.
void ask_for_a_core_first() {
    constexpr int kNice = -15;
    static_cast<void>(::setpriority(PRIO_PROCESS, 0, kNice));  // on Linux it applies to the calling thread only
}

constexpr int kStallSlices = 10;                             // slices in which the stall of a copy is counted
constexpr auto kStopSlice = std::chrono::milliseconds(100);  // longest time until a waiting copy notices a stop request

class CopyStream final : public Stream {
public:
    explicit CopyStream(const CopyStreamSettings& settings) : settings_(settings), thread_([this] { run(); }) {}
    ~CopyStream() override {
        {
            const std::scoped_lock lock(mutex_);
            hurry_ = true;
        }
        hurried_.notify_all();
        push({Task::Kind::Stop});
        thread_.join();
    }
    CopyStream(const CopyStream&) = delete;
    CopyStream& operator=(const CopyStream&) = delete;

    void copy(void* dst, const void* src, std::size_t bytes) override {
        if (bytes == 0) return;
        push({.kind = Task::Kind::Copy, .target = dst, .source = src, .bytes = bytes});
    }
    std::uint64_t record(Event& event) override {
        const std::uint64_t use = as_cpu(event).next_use();
        push({.kind = Task::Kind::Complete, .target = &as_cpu(event), .use = use});
        return use;
    }
    void wait(const Event& event, std::uint64_t use) override {
        check_recorded(event, use);
        push({.kind = Task::Kind::Wait, .source = &as_cpu(event), .use = use});
    }
    void synchronize() override {
        std::unique_lock lock(mutex_);
        drained_.wait(lock, [this] { return head_ == tail_ && idle_; });
        if (!failure_.empty()) throw IoError(std::exchange(failure_, {}));
    }

private:
    using Clock = LinkClock::Clock;

    struct Task {
        enum class Kind : std::uint8_t { Copy, Complete, Wait, Stop };
        Kind kind = Kind::Stop;
        void* target = nullptr;
        const void* source = nullptr;
        std::size_t bytes = 0;
        std::uint64_t use = 0;
        Clock::time_point enqueued{};
    };

    void push(Task task) {
        std::unique_lock lock(mutex_);
        room_.wait(lock, [this] { return tail_ - head_ < queue_.size(); });
        task.enqueued = Clock::now();
        queue_[tail_ % queue_.size()] = task;
        ++tail_;
        work_.notify_one();
    }

    void run() {
        if (settings_.link.throttled()) ask_for_a_core_first();
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
                    run_copy(task);
                    break;
                case Task::Kind::Complete:
                    static_cast<CpuEvent*>(task.target)->complete(task.use, failure());
                    break;
                case Task::Kind::Wait:
                    run_wait(*static_cast<const CpuEvent*>(task.source), task.use);
                    break;
                case Task::Kind::Stop:
                    return;
            }
        }
    }

    void run_copy(const Task& task) {
        if (!failure().empty()) return;
        if (settings_.faults != nullptr && fault_is_due(settings_.faults->copies_until_failure)) {
            fail(
                fmt::format("{}: a copy of {} bytes failed, as was asked of this device; take the fault out of its "
                            "options",
                            settings_.place, task.bytes));
            return;
        }
        if (settings_.faults != nullptr && fault_is_due(settings_.faults->copies_until_stall)) {
            stand_still();
            fail(fmt::format(
                "{}: a copy of {} bytes made no progress for {:.3g} s; check the device and its link, or "
                "leave it out of --devices",
                settings_.place, task.bytes, std::chrono::duration<double>(settings_.faults->stall_after).count()));
            return;
        }
        const LinkClock::Turn turn = settings_.link.take(task.bytes, std::max(task.enqueued, waited_until_));
        pause_until(turn.begin);
        std::memcpy(task.target, task.source, task.bytes);
        pause_until(turn.end);
        settings_.link.finish(task.bytes);
    }

    void run_wait(const CpuEvent& event, std::uint64_t use) {
        event.block_until(use);
        waited_until_ = std::max(waited_until_, event.completed_at());
        if (std::string failure = event.failure_of(use); !failure.empty()) fail(std::move(failure));
    }

    void pause_until(Clock::time_point time) {
        for (Clock::time_point now = Clock::now(); now < time; now = Clock::now()) {
            if (settings_.faults != nullptr && settings_.faults->stopped()) return settings_.link.give_up_turns();
            std::unique_lock lock(mutex_);
            if (hurried_.wait_until(lock, std::min(time, now + kStopSlice), [this] { return hurry_; })) return;
        }
    }

    void stand_still() {
        std::unique_lock lock(mutex_);
        for (int slice = 0; slice < kStallSlices; ++slice)
            if (hurried_.wait_for(lock, settings_.faults->stall_after / kStallSlices, [this] { return hurry_; }))
                return;
    }

    [[nodiscard]] std::string failure() {
        const std::scoped_lock lock(mutex_);
        return failure_;
    }
    void fail(std::string failure) {
        const std::scoped_lock lock(mutex_);
        if (failure_.empty()) failure_ = std::move(failure);
    }

    const CopyStreamSettings settings_;
    Clock::time_point waited_until_{};  // latest completion of the uses that were waited for; only thread_ uses it
    std::mutex mutex_;
    std::condition_variable work_, room_, drained_, hurried_;
    std::array<Task, 1024> queue_;
    std::size_t head_ = 0;  // tasks taken so far
    std::size_t tail_ = 0;  // tasks pushed so far
    bool idle_ = false;     // the thread is between tasks
    bool hurry_ = false;    // the destructor runs: turns and stalls are not waited for any more
    std::string failure_;   // empty: none
    std::thread thread_;    // declared last: it starts when all other members exist
};

}  // namespace

std::unique_ptr<Stream> make_copy_stream(const CopyStreamSettings& settings) {
    return std::make_unique<CopyStream>(settings);
}

}  // namespace slipstream::cpu
