#include "kernels/cuda/cuda_stream.h"

#include "kernels/base/check.h"

namespace slipstream::cuda {

CudaEvent::CudaEvent(const CudaDevice& device) : device_(&device) {}

CudaEvent::~CudaEvent() {
    ErrorText ignored{};
    for (void* handle : handles_)
        if (handle != nullptr) device_->table().free_event(handle, &ignored);
}

void* CudaEvent::handle_of(std::uint64_t use) const {
    void*& handle = handles_[use % kHandles];
    if (handle == nullptr) {
        ErrorText error{};
        device_->check(device_->table().make_event(device_->ordinal(), EventKind::Order, &handle, &error), error,
                       "an event");
    }
    return handle;
}

std::uint64_t CudaEvent::record(Place place) {
    const std::uint64_t use = recorded() + 1;
    ErrorText error{};
    device_->check(device_->table().record(place, handle_of(use), &error), error, "recording an event");
    recorded_.store(use, std::memory_order_release);
    return use;
}

void CudaEvent::wait(Place place, std::uint64_t use) const {
    CHECK(use >= 1 && use <= recorded(), "wait for use {} of an event recorded {} times", use, recorded());
    ErrorText error{};
    device_->check(device_->table().wait(place, handle_of(use), &error), error, "waiting for an event");
}

void CudaEvent::await(std::uint64_t use) const {
    CHECK(use <= recorded(), "wait for use {} of an event recorded {} times", use, recorded());
    if (use <= completed_.load(std::memory_order_acquire)) return;
    ErrorText error{};
    device_->check(device_->table().await(handle_of(use), &error), error, "waiting for the card");
    completed_.store(std::max(use, completed_.load()), std::memory_order_release);
}

// The handle of a use tells of it as long as no later use has taken it over.
std::uint64_t CudaEvent::completed() const {
    const std::uint64_t last = recorded();
    const std::uint64_t done = completed_.load(std::memory_order_acquire);
    for (std::uint64_t use = last; use > done && use + kHandles > last; --use) {
        ErrorText error{};
        const Status status = device_->table().query(handle_of(use), &error);
        if (status == Status::NotReady) continue;
        device_->check(status, error, "asking for an event");
        completed_.store(use, std::memory_order_release);
        return use;
    }
    return done;
}

LinkMeter::~LinkMeter() {
    ErrorText ignored{};
    for (const Copy& copy : under_way_)
        for (void* event : {copy.begin, copy.end}) device_->table().free_event(event, &ignored);
    for (void* event : idle_events_) device_->table().free_event(event, &ignored);
}

void* LinkMeter::take_event() {
    void* event = nullptr;
    if (!idle_events_.empty()) {
        event = idle_events_.back();
        idle_events_.pop_back();
        return event;
    }
    ErrorText error{};
    device_->check(device_->table().make_event(device_->ordinal(), EventKind::Timing, &event, &error), error,
                   "an event");
    return event;
}

LinkMeter::Copy LinkMeter::begin(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    collect();
    void* first = take_event();
    return {first, take_event(), bytes};
}

void LinkMeter::enqueued(const Copy& copy) {
    const std::scoped_lock lock(mutex_);
    under_way_.push_back(copy);
}

void LinkMeter::forgotten(const Copy& copy) {
    const std::scoped_lock lock(mutex_);
    idle_events_.push_back(copy.begin);
    idle_events_.push_back(copy.end);
}

// Of several streams one may be late: the copies behind it are counted when it is done.
void LinkMeter::collect() {
    const Module& table = device_->table();
    while (!under_way_.empty()) {
        const Copy copy = under_way_.front();
        ErrorText error{};
        if (table.query(copy.end, &error) != Status::Ok) return;
        float milliseconds = 0.0F;
        if (table.elapsed(copy.begin, copy.end, &milliseconds, &error) == Status::Ok)
            figures_.busy_seconds += 1e-3 * static_cast<double>(milliseconds);
        figures_.bytes += copy.bytes;
        under_way_.pop_front();
        idle_events_.push_back(copy.begin);
        idle_events_.push_back(copy.end);
    }
}

LinkFigures LinkMeter::figures() {
    const std::scoped_lock lock(mutex_);
    collect();
    return figures_;
}

CudaStream::CudaStream(CudaDevice& device, StreamKind kind) : device_(&device) {
    if (kind == StreamKind::CopyIn) meter_ = device.link_in_.get();
    if (kind == StreamKind::CopyOut) meter_ = device.link_out_.get();
    place_.device = device.ordinal();
    const QueueKind queue = kind == StreamKind::Compute ? QueueKind::Compute : QueueKind::Copy;
    ErrorText error{};
    device.check(device.table().make_stream(place_.device, queue, &place_.stream, &error), error, "a stream");
}

CudaStream::~CudaStream() {
    ErrorText ignored{};
    device_->table().synchronize(place_, &ignored);  // what failed is told by whatever comes next
    device_->end_turn(*this);
    device_->table().free_stream(place_, &ignored);
}

void CudaStream::copy(void* dst, const void* src, std::size_t bytes) {
    if (bytes == 0) return;
    if (meter_ == nullptr) device_->count_change();
    const Module& table = device_->table();
    ErrorText error{};
    if (meter_ == nullptr) {
        device_->check(table.copy(place_, dst, src, bytes, &error), error, "a copy");
        return;
    }
    const LinkMeter::Copy timed = meter_->begin(bytes);
    Status status = table.record(place_, timed.begin, &error);
    if (status == Status::Ok) status = table.copy(place_, dst, src, bytes, &error);
    if (status == Status::Ok) status = table.record(place_, timed.end, &error);
    if (status == Status::Ok) return meter_->enqueued(timed);
    meter_->forgotten(timed);
    device_->check(status, error, "a copy");
}

std::uint64_t CudaStream::record(Event& event) {
    return static_cast<CudaEvent&>(event).record(place_);
}

// What other streams have written meanwhile may be seen from here on.
void CudaStream::wait(const Event& event, std::uint64_t use) {
    if (meter_ == nullptr) device_->count_change();
    static_cast<const CudaEvent&>(event).wait(place_, use);
}

void CudaStream::synchronize() {
    ErrorText error{};
    device_->check(device_->table().synchronize(place_, &error), error, "work on the card");
}

}  // namespace slipstream::cuda
