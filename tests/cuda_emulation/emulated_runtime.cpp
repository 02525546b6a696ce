// The runtime's table of an emulated machine: what a card's runtime would do, and what it would refuse.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/cuda/host/table_bytes.h"
#include "tests/cuda_emulation/machine_state.h"

namespace slipstream::emulation {

namespace {

using cuda::ErrorText;
using cuda::Place;
using cuda::Status;

Status fail(ErrorText* error, Status status, const std::string& text) {
    std::snprintf(error->text, sizeof(error->text), "%s", text.c_str());
    return status;
}

Status injected(ErrorText* error) {
    return fail(error, Status::Failed, "an injected fault");
}

Stream& stream_of(Place place) {
    return *static_cast<Stream*>(place.stream);
}
Event& event_of(void* event) {
    return *static_cast<Event*>(event);
}

Status count_devices(std::int32_t* n, ErrorText* error) {
    *n = 0;
    if (machine == nullptr || machine->options.n_cards == 0) return fail(error, Status::NoDevice, "no card");
    *n = machine->options.n_cards;
    return Status::Ok;
}

Status try_kernel(std::int32_t, ErrorText* error) {
    if (machine->options.runs_kernels) return Status::Ok;
    return fail(error, Status::NoImage, "no kernel image is available for execution on the device");
}

Status device_properties(std::int32_t device, cuda::DeviceProperties* properties, ErrorText* error) {
    if (device < 0 || device >= machine->options.n_cards) return fail(error, Status::Failed, "invalid device ordinal");
    *properties = {};
    std::snprintf(properties->name, sizeof(properties->name), "an emulated card");
    properties->sm = machine->options.sm;
    properties->n_multiprocessors = 4;
    properties->driver_version = 13000;
    properties->runtime_version = 13000;
    properties->memory_bytes = machine->options.memory_bytes;
    properties->l2_bytes = std::uint64_t{1} << 20;
    properties->shared_bytes_per_block = 99 << 10;
    properties->allocation_bytes = machine->options.allocation_bytes;
    return Status::Ok;
}

Status memory_info(std::int32_t device, std::uint64_t* free_bytes, std::uint64_t* total_bytes, ErrorText*) {
    const CardMemory& card = *machine->cards[device];
    *total_bytes = card.size_bytes();
    *free_bytes = card.size_bytes() - card.allocated_bytes();
    return Status::Ok;
}

Status allocate(std::int32_t device, std::size_t bytes, void** data, ErrorText* error) {
    if (machine->fails(Call::Allocation)) return fail(error, Status::OutOfMemory, "out of memory");
    if (machine->ends_capture("an allocation", error)) return Status::Failed;
    machine->open();
    *data = machine->cards[device]->allocate(round_up(bytes, machine->options.allocation_bytes));
    machine->close();
    return *data == nullptr ? fail(error, Status::OutOfMemory, "out of memory") : Status::Ok;
}

Status free_memory(std::int32_t device, void* data, ErrorText* error) {
    if (machine->ends_capture("freeing memory", error)) return Status::Failed;
    machine->open();
    machine->cards[device]->free(static_cast<std::byte*>(data));
    machine->close();
    return Status::Ok;
}

Status lock(std::int32_t device, void* data, std::size_t bytes, ErrorText* error) {
    if (machine->fails(Call::Allocation)) return fail(error, Status::OutOfMemory, "out of memory");
    if (machine->ends_capture("page-locking", error)) return Status::Failed;
    if (device < 0 || device >= machine->options.n_cards) return fail(error, Status::Failed, "invalid device ordinal");
    const std::optional<bool> there = machine->is_locked(data, bytes);
    const std::scoped_lock guard(machine->locked_mutex);
    machine->locking_card = device;
    if (bytes > machine->options.lockable_bytes - std::min(machine->options.lockable_bytes, machine->locked_bytes))
        return fail(error, Status::OutOfMemory, "out of memory");
    if (!there || *there) return fail(error, Status::Failed, "part or all of the range is registered already");
    machine->locked[static_cast<std::byte*>(data)] = bytes;
    machine->locked_bytes += bytes;
    return Status::Ok;
}

Status unlock(std::int32_t, void* data, ErrorText* error) {
    if (machine->ends_capture("giving up page-locked memory", error)) return Status::Failed;
    const std::scoped_lock guard(machine->locked_mutex);
    const auto range = machine->locked.find(static_cast<std::byte*>(data));
    if (range == machine->locked.end()) return fail(error, Status::Failed, "the range is not registered");
    CHECK(!machine->has_copy_of(range->first, range->second), "page-locked memory is given up before a copy is done");
    machine->locked_bytes -= range->second;
    machine->locked.erase(range);
    return Status::Ok;
}

Status allocate_host(std::int32_t device, std::size_t bytes, void** data, ErrorText* error) {
    *data = std::aligned_alloc(4096, round_up(bytes, std::size_t{4096}));
    CHECK(*data != nullptr);
    std::memset(*data, static_cast<int>(kPoison), bytes);
    const Status status = lock(device, *data, round_up(bytes, std::size_t{4096}), error);
    if (status != Status::Ok) std::free(*data);
    return status;
}

Status free_host(std::int32_t device, void* data, ErrorText* error) {
    const Status status = unlock(device, data, error);
    if (status == Status::Ok) std::free(data);
    return status;
}

Status make_stream(std::int32_t, cuda::QueueKind kind, void** stream, ErrorText*) {
    machine->streams.push_back(std::make_unique<Stream>());
    machine->streams.back()->is_for_copies = kind == cuda::QueueKind::Copy;
    *stream = machine->streams.back().get();
    return Status::Ok;
}

Status free_stream(Place place, ErrorText* error) {
    if (machine->ends_capture("freeing a stream", error)) return Status::Failed;
    machine->drain(stream_of(place));
    std::erase_if(machine->streams, [&](const auto& stream) { return stream.get() == place.stream; });
    return Status::Ok;
}

Status synchronize(Place place, ErrorText* error) {
    if (Machine::State::ends_capture_of(stream_of(place), "synchronize", error)) return Status::Failed;
    ++machine->n_waits;
    machine->drain(stream_of(place));
    return Status::Ok;
}

// What is wrong with a copy's two sides as they are now; empty: nothing. `pageable`: one is host memory that is not
// page-locked.
std::string wrong_with(const CopyTask& copy, bool* pageable) {
    *pageable = false;
    for (const void* side : {static_cast<const void*>(copy.dst), copy.src}) {
        if (const CardMemory* card = machine->card_of(side); card != nullptr) {
            if (!card->is_allocated(side, copy.bytes)) return "invalid argument";
            continue;
        }
        const std::optional<bool> locked = machine->is_locked(side, copy.bytes);
        if (!locked) return "invalid argument";
        *pageable = *pageable || !*locked;
    }
    return {};
}

Status copy(Place place, void* dst, const void* src, std::size_t bytes, ErrorText* error) {
    Stream& stream = stream_of(place);
    if (machine->fails(Call::Copy)) return injected(error);
    const CopyTask task{dst, src, bytes};
    bool pageable = false;
    if (const std::string wrong = wrong_with(task, &pageable); !wrong.empty()) {
        if (machine->ends_capture_of(stream, "a copy of memory that is not there", error)) return Status::Failed;
        return fail(error, Status::Failed, wrong);
    }
    const auto work = [task] { std::memcpy(task.dst, task.src, task.bytes); };
    if (stream.capture != nullptr) {
        if (pageable) {
            machine->ends_capture_of(stream, "a copy from or to pageable host memory", error);
            return Status::Failed;
        }
        stream.capture->work.emplace_back(work);
        stream.capture->copies.push_back(task);
        return Status::Ok;
    }
    if (pageable && stream.is_for_copies) ++machine->n_pageable_copies;
    ++machine->n_copies;
    stream.tasks.push_back({.work = work, .copy = task});
    machine->go_on();
    return Status::Ok;
}

Status make_event(std::int32_t, cuda::EventKind, void** event, ErrorText* error) {
    if (machine->fails(Call::Event)) return injected(error);
    *event = new Event();
    ++machine->n_events;
    return Status::Ok;
}

// A card keeps an event until what is enqueued of it is done.
Status free_event(void* event, ErrorText*) {
    machine->bring_about(event_of(event), event_of(event).recorded);
    for (const auto& stream : machine->streams)
        if (std::ranges::any_of(stream->tasks, [&](const Stream::Task& task) { return task.event == event; }))
            machine->drain(*stream);
    delete &event_of(event);
    --machine->n_events;
    return Status::Ok;
}

Status record(Place place, void* event, ErrorText* error) {
    if (machine->fails(Call::Event)) return injected(error);
    event_of(event).is_of_capture = stream_of(place).capture != nullptr;
    if (event_of(event).is_of_capture) return Status::Ok;
    const std::uint64_t use = ++event_of(event).recorded;
    event_of(event).where[use] = &stream_of(place);
    stream_of(place).tasks.push_back({.event = &event_of(event), .use = use, .records = true});
    machine->go_on();
    return Status::Ok;
}

// A card would draw a stream that waits for a captured event into the capture; nothing here means that.
Status wait(Place place, void* event, ErrorText* error) {
    if (machine->fails(Call::Event)) return injected(error);
    Stream& stream = stream_of(place);
    if (stream.capture != nullptr) {
        if (event_of(event).is_of_capture) return Status::Ok;
        machine->ends_capture_of(stream, "a wait for an event that was recorded outside", error);
        return Status::Failed;
    }
    if (event_of(event).is_of_capture)
        return fail(error, Status::Failed, "a wait outside a capture for an event that was recorded in it");
    stream.tasks.push_back({.event = &event_of(event), .use = event_of(event).recorded});
    machine->go_on();
    return Status::Ok;
}

Status query(void* event, ErrorText* error) {
    if (machine->fails(Call::Event)) return injected(error);
    if (machine->ends_capture("asking for an event", error)) return Status::Failed;
    if (event_of(event).is_of_capture)
        return fail(error, Status::Failed, "asking for an event that was recorded in a capture");
    return event_of(event).done == event_of(event).recorded ? Status::Ok : Status::NotReady;
}

Status await(void* event, ErrorText* error) {
    if (machine->fails(Call::Event)) return injected(error);
    if (machine->ends_capture("waiting for an event", error)) return Status::Failed;
    if (event_of(event).is_of_capture)
        return fail(error, Status::Failed, "waiting for an event that was recorded in a capture");
    machine->bring_about(event_of(event), event_of(event).recorded);
    return Status::Ok;
}

Status begin_capture(Place place, ErrorText* error) {
    if (machine->fails(Call::Graph)) return injected(error);
    if (machine->ends_capture("another capture", error)) return Status::Failed;
    stream_of(place).capture = std::make_unique<Graph>();
    return Status::Ok;
}

Status end_capture(Place place, void** graph, std::int64_t* n_nodes, ErrorText* error) {
    if (stream_of(place).capture == nullptr) return fail(error, Status::Failed, "the stream is not capturing");
    std::unique_ptr<Graph> captured = std::move(stream_of(place).capture);
    if (machine->fails(Call::Graph)) return injected(error);
    if (!captured->invalid.empty())
        return fail(error, Status::Failed, "the capture was invalidated (" + captured->invalid + ")");
    if (machine->refuses_graphs) return fail(error, Status::OutOfMemory, "out of memory");
    *n_nodes = std::ssize(captured->work);
    *graph = captured.release();
    ++machine->n_graphs;
    return Status::Ok;
}

Status launch_graph(Place place, void* graph, ErrorText* error) {
    if (machine->ends_capture_of(stream_of(place), "a launch of a graph", error)) return Status::Failed;
    if (machine->fails(Call::Kernel)) return injected(error);
    bool pageable = false;
    for (const CopyTask& task : static_cast<Graph*>(graph)->copies)
        if (!wrong_with(task, &pageable).empty() || pageable)
            return fail(error, Status::Failed, "a copy of the graph reads or writes memory that is gone");
    ++machine->n_graph_launches;
    // Kept until it has run, as a card keeps it.
    stream_of(place).tasks.push_back({.work = [work = static_cast<Graph*>(graph)->work] {
        for (const auto& step : work) step();
    }});
    machine->go_on();
    return Status::Ok;
}

Status free_graph(std::int32_t, void* graph, ErrorText*) {
    delete static_cast<Graph*>(graph);
    --machine->n_graphs;
    return Status::Ok;
}

Status elapsed(void* begin, void* end, float* milliseconds, ErrorText* error) {
    if (query(begin, error) != Status::Ok || query(end, error) != Status::Ok) return Status::NotReady;
    const std::chrono::duration<float, std::milli> time = event_of(end).done_at - event_of(begin).done_at;
    *milliseconds = time.count();
    return Status::Ok;
}

Status blas_version(std::int64_t* version, ErrorText* error) {
    *version = 1;
    return machine->options.has_blas ? Status::Ok : fail(error, Status::Failed, "the machine has none");
}

Status make_blas(std::int32_t, void** blas, ErrorText* error) {
    if (!machine->options.has_blas) return fail(error, Status::Failed, "the machine has none");
    if (!machine->options.blas_opens) return fail(error, Status::Failed, "it does not open");
    *blas = new char;
    ++machine->n_blas;
    return Status::Ok;
}

Status free_blas(std::int32_t, void* blas, ErrorText*) {
    delete static_cast<char*>(blas);
    --machine->n_blas;
    return Status::Ok;
}

// A call of the table, one at a time.
template <auto Call>
struct Guarded;
template <typename... Arguments, Status (*Call)(Arguments...)>
struct Guarded<Call> {
    static Status call(Arguments... arguments) {
        const std::scoped_lock guard(machine->calls_mutex);
        return Call(arguments...);
    }
};
template <auto Call>
constexpr auto guarded = &Guarded<Call>::call;

}  // namespace

Status enqueue_product(Place place, std::function<void()> work, ErrorText* error) {
    const std::scoped_lock guard(machine->calls_mutex);
    ++machine->n_prompt_products;
    return enqueue(place, std::move(work), error);
}

Status enqueue(Place place, std::function<void()> work, ErrorText* error) {
    const std::scoped_lock guard(machine->calls_mutex);
    Stream& stream = stream_of(place);
    if (machine->fails(Call::Kernel)) {
        if (stream.capture != nullptr) stream.capture->invalid = "an injected fault";
        return injected(error);
    }
    if (stream.capture != nullptr) {
        stream.capture->work.push_back(std::move(work));
        return Status::Ok;
    }
    ++machine->n_kernels;
    stream.tasks.push_back({.work = std::move(work)});
    machine->go_on();
    return Status::Ok;
}

cuda::Module runtime_table() {
    return {.version = cuda::kModuleVersion,
            .table_bytes = cuda::kTableBytes,
            .architectures = "",
            .count_devices = count_devices,
            .try_kernel = try_kernel,
            .device_properties = device_properties,
            .memory_info = guarded<memory_info>,
            .allocate = guarded<allocate>,
            .free = guarded<free_memory>,
            .allocate_host = guarded<allocate_host>,
            .free_host = guarded<free_host>,
            .register_host = guarded<lock>,
            .unregister_host = guarded<unlock>,
            .make_stream = guarded<make_stream>,
            .free_stream = guarded<free_stream>,
            .synchronize = guarded<synchronize>,
            .copy = guarded<copy>,
            .make_event = guarded<make_event>,
            .free_event = guarded<free_event>,
            .record = guarded<record>,
            .wait = guarded<wait>,
            .query = guarded<query>,
            .await = guarded<await>,
            .elapsed = guarded<elapsed>,
            .begin_capture = guarded<begin_capture>,
            .end_capture = guarded<end_capture>,
            .launch_graph = guarded<launch_graph>,
            .free_graph = guarded<free_graph>,
            .blas_version = blas_version,
            .make_blas = guarded<make_blas>,
            .free_blas = guarded<free_blas>};
}

}  // namespace slipstream::emulation
