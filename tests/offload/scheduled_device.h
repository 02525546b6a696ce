// A device whose streams do nothing until a schedule lets them, so that a test sees what asynchronous streams may do:
// copies as early as their waits allow, or as late, or anything between. No threads, no memory of its own.
//
// Events are as on a card: a wait means the latest use at the time of the call. Waiting for an older one is counted,
// since there it would wait for too much.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "kernels/device.h"

namespace slipstream {

enum class Schedule : std::uint8_t { CopiesEarly, CopiesLate, Random };
inline constexpr Schedule kSchedules[] = {Schedule::CopiesEarly, Schedule::CopiesLate, Schedule::Random};

class ScheduledEvent final : public Event {
public:
    [[nodiscard]] std::uint64_t recorded() const override { return n_recorded; }
    [[nodiscard]] std::uint64_t completed() const override { return n_completed; }
    std::uint64_t n_recorded = 0;
    std::uint64_t n_completed = 0;
};

class ScheduledDevice;

class ScheduledStream final : public Stream {
public:
    ScheduledStream(ScheduledDevice& device, StreamKind kind) : device_(&device), kind_(kind) {}

    void copy(void* dst, const void* src, std::size_t bytes) override {
        check_refused();
        call([dst, src, bytes] { std::memcpy(dst, src, bytes); });
    }
    std::uint64_t record(Event& event) override {
        check_refused();
        auto* of_ours = static_cast<ScheduledEvent*>(&event);
        const std::uint64_t use = ++of_ours->n_recorded;
        call([of_ours, use] { of_ours->n_completed = use; });
        return use;
    }
    void wait(const Event& event, std::uint64_t use) override;
    void synchronize() override;
    /// Work of any kind in stream order.
    void call(std::function<void()> work) { tasks_.push_back({std::move(work), nullptr, 0}); }

    [[nodiscard]] StreamKind kind() const { return kind_; }
    [[nodiscard]] bool is_empty() const { return tasks_.empty(); }
    /// Does the next task unless it waits; whether one was done.
    bool step() {
        if (tasks_.empty()) return false;
        Task& task = tasks_.front();
        if (task.event != nullptr && task.event->completed() < task.use) return false;
        if (task.work) task.work();
        tasks_.pop_front();
        return true;
    }

private:
    struct Task {
        std::function<void()> work;
        const Event* event;  // where set: a wait
        std::uint64_t use;
    };
    void check_refused();

    ScheduledDevice* device_;
    StreamKind kind_;
    std::deque<Task> tasks_;
};

class ScheduledDevice final : public Device {
public:
    ScheduledDevice(Schedule schedule, unsigned seed) : schedule_(schedule), rng_(seed) {}

    [[nodiscard]] DeviceKind kind() const override { return DeviceKind::Cuda; }
    [[nodiscard]] std::string_view name() const override { return "scheduled"; }
    [[nodiscard]] std::string_view instruction_form() const override { return "none"; }
    [[nodiscard]] Budget& budget() override { return budget_; }
    [[nodiscard]] Buffer allocate(std::size_t, MemoryTag, std::string_view) override { return {}; }
    [[nodiscard]] std::unique_ptr<Stream> make_stream(StreamKind kind) override {
        auto stream = std::make_unique<ScheduledStream>(*this, kind);
        streams_.push_back(stream.get());
        return stream;
    }
    [[nodiscard]] std::unique_ptr<Event> make_event() override { return std::make_unique<ScheduledEvent>(); }
    [[nodiscard]] LinkFigures link_in() const override { return {}; }
    [[nodiscard]] LinkFigures link_out() const override { return {}; }
    [[nodiscard]] const OpTable& ops() const override { CHECK(false, "no ops here"); }

    /// To be called after each call of the host: the streams go on as the schedule says.
    void let_run() {
        switch (schedule_) {
            case Schedule::CopiesEarly:  // the compute stream rests until somebody synchronises
                while (step_copies()) {
                }
                break;
            case Schedule::CopiesLate:
                while (step_compute()) {
                }
                break;
            case Schedule::Random:
                for (unsigned n = rng_() % 8; n > 0 && !streams_.empty(); --n)
                    streams_[rng_() % streams_.size()]->step();
                break;
        }
    }
    /// Until `stream` is empty, and no further; false for a deadlock.
    bool run_until_empty(ScheduledStream& stream) {
        while (!stream.is_empty())
            if (!stream.step() && !step_copies() && !step_compute()) return false;
        return true;
    }
    /// Until nothing is left to do, or nothing can be done; false for the latter: a deadlock.
    bool run_all() {
        bool progress = true;
        while (progress) {
            if (schedule_ == Schedule::CopiesEarly) {
                progress = step_copies() || step_compute();
            } else {
                progress = step_compute() || step_copies();
            }
        }
        for (const ScheduledStream* stream : streams_)
            if (!stream->is_empty()) return false;
        return true;
    }

    int n_synchronised = 0;
    int n_stale_waits = 0;  // for a use that is not the latest
    /// Copies, records and waits until one is refused at its call (CudaError): 1 is the next one, 0 none.
    int calls_until_refusal = 0;

private:
    bool step_copies() {
        for (ScheduledStream* stream : streams_)
            if (stream->kind() != StreamKind::Compute && stream->step()) return true;
        return false;
    }
    bool step_compute() {
        for (ScheduledStream* stream : streams_)
            if (stream->kind() == StreamKind::Compute && stream->step()) return true;
        return false;
    }

    Schedule schedule_;
    std::mt19937 rng_;
    Budget budget_{"scheduled"};
    std::vector<ScheduledStream*> streams_;  // made and never dropped before the last run
};

inline void ScheduledStream::check_refused() {
    if (device_->calls_until_refusal > 0 && --device_->calls_until_refusal == 0) throw CudaError("a refused call");
}

inline void ScheduledStream::wait(const Event& event, std::uint64_t use) {
    check_refused();
    CHECK(use >= 1 && use <= event.recorded(), "wait for use {} of an event recorded {} times", use, event.recorded());
    device_->n_stale_waits += use != event.recorded() ? 1 : 0;
    tasks_.push_back({{}, &event, event.recorded()});
}

inline void ScheduledStream::synchronize() {
    ++device_->n_synchronised;
    CHECK(device_->run_until_empty(*this), "streams wait for each other");
}

}  // namespace slipstream
