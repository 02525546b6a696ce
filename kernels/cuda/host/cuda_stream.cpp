#include "kernels/cuda/host/cuda_stream.h"

#include "kernels/base/check.h"
#include "kernels/cuda/host/cuda_graph.h"
#include "kernels/cuda/host/link_pace.h"
#include "kernels/cuda/host/staging.h"

namespace slipstream::cuda {

CudaEvent::CudaEvent(const CudaDevice& device) : device_(&device) {}

CudaEvent::~CudaEvent() {
    ErrorText ignored{};
    for (void* handle : pending_) device_->table().free_event(handle, &ignored);
    for (void* handle : idle_) device_->table().free_event(handle, &ignored);
}

std::uint64_t CudaEvent::recorded() const {
    const std::scoped_lock lock(mutex_);
    return recorded_;
}

void CudaEvent::retire(std::uint64_t use) const {
    for (; completed_ < use; ++completed_) {
        idle_.push_back(pending_.front());
        pending_.pop_front();
    }
}

void CudaEvent::retire_done() const {
    while (!pending_.empty()) {
        ErrorText error{};
        const Status status = device_->table().query(pending_.front(), &error);
        if (status == Status::NotReady) return;
        device_->check(status, error, "asking for an event");
        retire(completed_ + 1);
    }
}

void* CudaEvent::take_handle() {
    if (idle_.empty()) retire_done();
    if (!idle_.empty()) {
        void* handle = idle_.back();
        idle_.pop_back();
        return handle;
    }
    void* handle = nullptr;
    ErrorText error{};
    device_->check(device_->table().make_event(device_->ordinal(), EventKind::Order, &handle, &error), error,
                   "an event");
    return handle;
}

void* CudaEvent::handle_of(std::uint64_t use) const {
    return pending_[use - completed_ - 1];
}

std::uint64_t CudaEvent::record(Place place) {
    const std::scoped_lock lock(mutex_);
    pending_.push_back(take_handle());
    ErrorText error{};
    const Status status = device_->table().record(place, pending_.back(), &error);
    if (status != Status::Ok) {  // a failed record makes no new use
        idle_.push_back(pending_.back());
        pending_.pop_back();
    }
    device_->check(status, error, "recording an event");
    return ++recorded_;
}

void CudaEvent::wait(Place place, std::uint64_t use) const {
    const std::scoped_lock lock(mutex_);
    CHECK(use >= 1 && use <= recorded_, "wait for use {} of an event recorded {} times", use, recorded_);
    if (use <= completed_) return;
    ErrorText error{};
    device_->check(device_->table().wait(place, handle_of(use), &error), error, "waiting for an event");
}

void CudaEvent::await(std::uint64_t use) const {
    const std::scoped_lock lock(mutex_);
    CHECK(use <= recorded_, "wait for use {} of an event recorded {} times", use, recorded_);
    if (use <= completed_) return;
    ErrorText error{};
    device_->check(device_->table().await(handle_of(use), &error), error, "waiting for the GPU");
    retire(use);
}

std::uint64_t CudaEvent::completed() const {
    const std::scoped_lock lock(mutex_);
    retire_done();
    return completed_;
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
    Copy copy{.bytes = bytes};
    copy.begin = take_event();
    try {
        copy.end = take_event();
    } catch (...) {
        idle_events_.push_back(copy.begin);
        throw;
    }
    return copy;
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

// Adds the copies that are done to the figures, in the order in which they were enqueued. With several streams one copy
// may be late; copies enqueued after it are counted only when it is done.
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
    if (kind == StreamKind::CopyIn) pace_ = device.pace_in_.get();
    if (kind == StreamKind::CopyOut) pace_ = device.pace_out_.get();
    if (pace_ != nullptr) pace_slot_ = pace_->take_slot();
    place_.device = device.ordinal();
    const QueueKind queue = kind == StreamKind::Compute ? QueueKind::Compute : QueueKind::Copy;
    ErrorText error{};
    device.check(device.table().make_stream(place_.device, queue, &place_.stream, &error), error, "a stream");
}

CudaStream::~CudaStream() {
    ErrorText ignored{};
    device_->table().synchronize(place_, &ignored);  // an error is reported by the next call on the device
    device_->end_turn(*this);
    device_->table().free_stream(place_, &ignored);
}

void CudaStream::copy(void* dst, const void* src, std::size_t bytes) {
    if (bytes == 0) return;
    if (meter_ == nullptr) {
        device_->count_change();
    } else {
        device_->count_copy(dst, bytes);
    }
    const Module& table = device_->table();
    ErrorText error{};
    if (meter_ == nullptr) {
        device_->check(table.copy(place_, dst, src, bytes, &error), error, "a copy");
        return;
    }
    const LinkMeter::Copy timed = meter_->begin(bytes);
    Status status = table.record(place_, timed.begin, &error);
    if (status == Status::Ok && pace_ != nullptr) status = pace_->begin(place_, pace_slot_, &error);
    if (status == Status::Ok) status = table.copy(place_, dst, src, bytes, &error);
    if (status == Status::Ok && pace_ != nullptr) status = pace_->end(place_, pace_slot_, bytes, &error);
    if (status == Status::Ok) status = table.record(place_, timed.end, &error);
    if (status == Status::Ok) return meter_->enqueued(timed);
    meter_->forgotten(timed);
    device_->check(status, error, "a copy");
}

std::uint64_t CudaStream::record(Event& event) {
    return static_cast<CudaEvent&>(event).record(place_);
}

// A wait does not count as a write to device memory: activations that were prepared for one matmul can be used by the
// next one. Writes of other compute streams and of copies are counted when they are enqueued. If waits were counted,
// each matmul with streamed weights would prepare its activations again, because the stream waits for those weights.
void CudaStream::wait(const Event& event, std::uint64_t use) {
    static_cast<const CudaEvent&>(event).wait(place_, use);
}

void CudaStream::synchronize() {
    ErrorText error{};
    device_->check(device_->table().synchronize(place_, &error), error, "work on the GPU");
}

// The turn is taken before the capture: a wait for another stream's work must not become part of the graph. What an op
// finds prepared in scratch must come from the graph itself, and later ops must not find what the graph's ops leave
// there.
std::unique_ptr<Graph> CudaStream::capture(const std::function<void()>& enqueue) {
    CHECK(has_graphs() && capturing_ == nullptr, "a graph within a graph, or of a copy stream");
    const Module& table = device_->table();
    device_->begin_turn(*this);
    device_->staging().reserve(this, 0);
    auto graph = std::make_unique<CudaGraph>(*device_, device_->staging().graph_block(), kGraphBlockBytes);
    device_->keep_prepared({});
    ErrorText error{};
    device_->check(table.begin_capture(place_, &error), error, "a graph");
    capturing_ = graph.get();
    void* handle = nullptr;
    std::int64_t n_nodes = 0;
    try {
        enqueue();
    } catch (...) {
        capturing_ = nullptr;
        device_->keep_prepared({});
        if (table.end_capture(place_, &handle, &n_nodes, &error) == Status::Ok) graph->set_captured(handle, n_nodes);
        throw;
    }
    capturing_ = nullptr;
    device_->keep_prepared({});
    device_->check(table.end_capture(place_, &handle, &n_nodes, &error), error, "a graph");
    graph->set_captured(handle, n_nodes);
    return graph;
}

bool CudaStream::launch(Graph& graph, const GraphNumbers& numbers) {
    auto& captured = static_cast<CudaGraph&>(graph);
    if (!captured.is_current()) return false;
    device_->begin_turn(*this);
    device_->count_change();
    device_->keep_prepared({});
    if (!device_->staging().send_graph_arrays(*this, captured, numbers)) return false;
    ErrorText error{};
    device_->check(device_->table().launch_graph(place_, captured.handle(), &error), error, "a launch of a graph");
    return true;
}

}  // namespace slipstream::cuda
