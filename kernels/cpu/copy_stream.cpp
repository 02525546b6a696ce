// Asynchronous copies of a CPU device: a thread that takes tasks from a fixed queue in order.
//
// A copy moves its bytes as soon as its turn on the link begins, in one go, and then waits until the turn is over:
// nobody may look at the target before the event behind the copy, so when within the turn the bytes move does not show,
// and early is best: memory's share of the time is hidden in the link's, and a thread that is kept from its core for a
// while has the rest of the turn to catch up. (Rejected: moving them piece by piece along the turn; each piece is a
// wake-up more, and the last of them, the one that counts, comes late when its wake-up does.)
//
// After a failure copies are skipped and events carry it on, until synchronize() has told it. A wait for another
// stream's use that carries a failure takes it over: what this stream would copy is not there.
//
// Every wait for this thread ends, since each of its copies does: with its turn on the link, as a failure once it has
// stood still for as long as the deadline says, and early where the program is asked to stop. The thread counts that
// time itself, so that copies of several devices that stand still together fail together, whoever waits for which; and
// in slices, so that a program that was stopped for an hour (Ctrl-Z) has not waited.
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

// A card's copy engine needs no core. Its stand-in needs a share of one (0.3 at 2 GiB/s, measured), and falls behind
// the link where more threads than cores ask for theirs, so it asks to be served before them. Whoever may not ask
// (RLIMIT_NICE) is served as the others are; on a machine that is not overloaded that is enough.
void ask_for_a_core_first() {
    constexpr int kNice = -15;
    static_cast<void>(::setpriority(PRIO_PROCESS, 0, kNice));  // on Linux: of the calling thread
}

constexpr int kStallSlices = 10;                             // of the deadline of a copy that stands still
constexpr auto kStopSlice = std::chrono::milliseconds(100);  // until a wish to stop is heard

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
                "{}: a copy of {} bytes has stood still for {:.3g} s; see to the device and its link, or "
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
    Clock::time_point waited_until_{};  // the thread's own: when the uses waited for so far were done
    std::mutex mutex_;
    std::condition_variable work_, room_, drained_, hurried_;
    std::array<Task, 1024> queue_;
    std::size_t head_ = 0;  // tasks taken so far
    std::size_t tail_ = 0;  // tasks pushed so far
    bool idle_ = false;     // the thread is between tasks
    bool hurry_ = false;    // the stream ends: nothing is waited for any more
    std::string failure_;   // empty: none
    std::thread thread_;    // last: starts when all above is made
};

}  // namespace

std::unique_ptr<Stream> make_copy_stream(const CopyStreamSettings& settings) {
    return std::make_unique<CopyStream>(settings);
}

}  // namespace slipstream::cpu
