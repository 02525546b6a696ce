#include "emulated_machine.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/cuda/table_bytes.h"

namespace slipstream::emulation {

namespace {

using cuda::ErrorText;
using cuda::Place;
using cuda::Status;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kGuardBytes = 256;
constexpr std::size_t kHugePageBytes = 2U << 20;  // protected as one, where the system has it so
constexpr std::byte kGuard{0xa5};
constexpr std::byte kPoison{0xff};  // NaN as F32, F16 and BF16; -1 as an index

Status fail(ErrorText* error, Status status, const std::string& text) {
    std::snprintf(error->text, sizeof(error->text), "%s", text.c_str());
    return status;
}

/// A card's memory: first fit between guard bands.
class CardMemory {
public:
    explicit CardMemory(std::size_t bytes) : bytes_(round_up(bytes, std::size_t{4096})) {
        void* mapped = ::mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(mapped != MAP_FAILED, "no address space for {} bytes", bytes_);
        data_ = static_cast<std::byte*>(mapped);
        ::madvise(data_, bytes_, MADV_HUGEPAGE);
    }
    ~CardMemory() { ::munmap(data_, bytes_); }
    CardMemory(const CardMemory&) = delete;
    CardMemory& operator=(const CardMemory&) = delete;

    [[nodiscard]] bool holds(const void* address) const {
        const auto* at = static_cast<const std::byte*>(address);
        return at >= data_ && at < data_ + bytes_;
    }
    void open(int protection) const {
        if (top_ > 0) CHECK(::mprotect(data_, top_, protection) == 0);
    }
    [[nodiscard]] std::size_t size_bytes() const { return bytes_; }
    [[nodiscard]] std::size_t allocated_bytes() const { return allocated_; }
    /// Whether [at, at + bytes) lies inside one allocation.
    [[nodiscard]] bool is_allocated(const void* at, std::size_t bytes) const {
        const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(at) - data_);
        auto block = blocks_.upper_bound(offset);
        if (block == blocks_.begin()) return false;
        --block;
        return offset + bytes <= block->first + block->second;
    }

    /// With the memory open; null where it is full.
    std::byte* allocate(std::size_t bytes) {
        std::size_t at = kGuardBytes;
        for (const auto& [begin, size] : blocks_) {
            if (begin >= at + bytes + kGuardBytes) break;
            at = round_up(begin + size + kGuardBytes, kGuardBytes);
        }
        if (at + bytes + kGuardBytes > bytes_ || bytes > bytes_) return nullptr;
        blocks_[at] = bytes;
        allocated_ += bytes;
        const std::size_t end = at + bytes + kGuardBytes;
        if (end > top_) {
            top_ = std::min(round_up(end, kHugePageBytes), bytes_);
            CHECK(::mprotect(data_, top_, PROT_READ | PROT_WRITE) == 0);
        }
        std::memset(data_ + at - kGuardBytes, static_cast<int>(kGuard), kGuardBytes);
        std::memset(data_ + at, static_cast<int>(kPoison), bytes);
        std::memset(data_ + at + bytes, static_cast<int>(kGuard), kGuardBytes);
        return data_ + at;
    }
    void free(std::byte* data) {
        const auto at = static_cast<std::size_t>(data - data_);
        const auto block = blocks_.find(at);
        CHECK(block != blocks_.end(), "memory is freed that was not allocated");
        const std::size_t bytes = block->second;
        const auto intact = [](std::byte value) { return value == kGuard; };
        CHECK(std::all_of(data - kGuardBytes, data, intact) &&
                  std::all_of(data + bytes, data + bytes + kGuardBytes, intact),
              "something wrote beside an allocation of {} bytes", bytes);
        std::memset(data, static_cast<int>(kPoison), bytes);
        allocated_ -= bytes;
        blocks_.erase(block);
    }

private:
    std::byte* data_ = nullptr;
    std::size_t bytes_;
    std::size_t top_ = 0;  // nothing above was ever used
    std::size_t allocated_ = 0;
    std::map<std::size_t, std::size_t> blocks_;  // bytes by offset
};

struct Stream;

struct Event {
    std::uint64_t recorded = 0;
    std::uint64_t done = 0;
    Clock::time_point done_at{};
    std::map<std::uint64_t, Stream*> where;  // records not done
    bool is_of_capture = false;              // the last record was captured: nobody outside may ask for it
};

struct CopyTask {
    void* dst = nullptr;
    const void* src = nullptr;
    std::size_t bytes = 0;
};

/// Work that was captured.
struct Graph {
    std::vector<std::function<void()>> work;
    std::vector<CopyTask> copies;  // among it, looked at again at each launch
    std::string invalid;           // what has ended the capture, if anything did
};

struct Stream {
    struct Task {
        std::function<void()> work;  // or
        Event* event = nullptr;
        std::uint64_t use = 0;
        bool records = false;  // else waits
    };
    bool is_for_copies = false;
    std::deque<Task> tasks;
    std::unique_ptr<Graph> capture;  // null: work is enqueued
};

}  // namespace

struct Machine::State {
    explicit State(const MachineOptions& wanted) : options(wanted) {
        for (int i = 0; i < options.n_cards; ++i) cards.push_back(std::make_unique<CardMemory>(options.memory_bytes));
    }

    MachineOptions options;
    std::vector<std::unique_ptr<CardMemory>> cards;
    std::map<std::byte*, std::size_t> locked;  // host ranges
    std::size_t locked_bytes = 0;
    std::vector<std::unique_ptr<Stream>> streams;
    std::int64_t n_events = 0;
    std::int64_t n_done = 0;
    std::int64_t n_pageable_copies = 0;
    std::int64_t n_kernels = 0;
    std::int64_t n_copies = 0;
    std::int64_t n_graph_launches = 0;
    std::int64_t n_graphs = 0;
    std::int64_t n_prompt_products = 0;
    std::int64_t n_blas = 0;  // made and not freed
    std::int64_t fail_in = 0;
    bool refuses_graphs = false;
    int n_open = 0;

    [[nodiscard]] CardMemory* card_of(const void* address) const {
        for (const auto& card : cards)
            if (card->holds(address)) return card.get();
        return nullptr;
    }

    void open() {
        if (n_open++ == 0)
            for (const auto& card : cards) card->open(PROT_READ | PROT_WRITE);
    }
    void close() {
        if (--n_open == 0)
            for (const auto& card : cards) card->open(PROT_NONE);
    }

    // Work may touch the cards' memory while this lives.
    struct Opened {
        explicit Opened(State& opened) : state(opened) { state.open(); }
        ~Opened() { state.close(); }
        Opened(const Opened&) = delete;
        Opened& operator=(const Opened&) = delete;
        State& state;
    };

    // Does the next task; false where it waits for what is not done.
    bool step(Stream& stream) {
        Stream::Task& task = stream.tasks.front();
        if (task.event != nullptr && !task.records && task.event->done < task.use) return false;
        if (task.records) {
            task.event->done = task.use;
            task.event->done_at = Clock::now();
            task.event->where.erase(task.use);
        } else if (task.work) {
            CHECK(n_open > 0);
            task.work();
            ++n_done;
        }
        stream.tasks.pop_front();
        return true;
    }
    // Everything that is enqueued, and what of other streams it waits for.
    void drain(Stream& stream) {
        if (stream.tasks.empty()) return;
        const Opened opened(*this);
        while (!stream.tasks.empty()) advance(stream);
    }
    void bring_about(Event& event, std::uint64_t use) {
        if (event.done >= use) return;
        const Opened opened(*this);
        while (event.done < use) {
            CHECK(!event.where.empty(), "a wait for what nobody records");
            advance(*event.where.begin()->second);
        }
    }
    // The next task, or what it waits for. Where copies come early they overtake what is computed meanwhile.
    void advance(Stream& stream) {
        if (!step(stream)) return bring_about(*stream.tasks.front().event, stream.tasks.front().use);
        if (options.timing == Timing::CopiesEarly && !stream.is_for_copies) copies_go_on();
    }
    void copies_go_on() {
        for (const auto& stream : streams) {
            if (!stream->is_for_copies || stream->tasks.empty()) continue;
            const Opened opened(*this);
            while (!stream->tasks.empty() && step(*stream)) {
            }
        }
    }
    void go_on() {
        switch (options.timing) {
            case Timing::AtOnce:
                for (const auto& stream : streams) drain(*stream);
                break;
            case Timing::CopiesEarly:
                copies_go_on();
                break;
            case Timing::Latest:
                break;
        }
    }
    bool fails() { return fail_in > 0 && --fail_in == 0; }

    // A call that no capture survives, where one is going on; the machine has one thread as far as captures go.
    bool ends_capture(const char* call, ErrorText* error) {
        const auto captures = [](const auto& stream) { return stream->capture != nullptr; };
        const auto found = std::ranges::find_if(streams, captures);
        return found != streams.end() && ends_capture_of(**found, call, error);
    }
    static bool ends_capture_of(Stream& stream, const char* call, ErrorText* error) {
        if (stream.capture == nullptr) return false;
        const std::string text = std::string("operation not permitted when stream is capturing: ") + call;
        if (stream.capture->invalid.empty()) stream.capture->invalid = text;
        std::snprintf(error->text, sizeof(error->text), "%s", text.c_str());
        return true;
    }

    // Whether the host's bytes are page-locked; false also where none of them is. Nothing where a border is crossed.
    [[nodiscard]] std::optional<bool> is_locked(const void* data, std::size_t bytes) const {
        const auto* begin = static_cast<const std::byte*>(data);
        for (const auto& [start, size] : locked) {
            const bool first = begin >= start && begin < start + size;
            const bool last = begin + bytes > start && begin + bytes <= start + size;
            if (first && last) return true;
            if (first || last || (begin < start && begin + bytes > start + size)) return std::nullopt;
        }
        return false;
    }
};

namespace {

Machine::State* machine = nullptr;
struct sigaction before;  // of SIGSEGV

// An access to closed memory of a card says so; whatever else comes goes to who was there before.
void on_fault(int signal, siginfo_t* info, void*) {
    if (machine != nullptr && machine->card_of(info->si_addr) != nullptr) {
        constexpr char kText[] =
            "the host touches memory of a card: only work on its streams may (kernels/device.h, shares_host_memory)\n";
        static_cast<void>(!::write(STDERR_FILENO, kText, sizeof(kText) - 1));
    }
    ::sigaction(signal, &before, nullptr);  // the access is made once more, and ends as it would have
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
    const CardMemory& card = *machine->cards[static_cast<std::size_t>(device)];
    *total_bytes = card.size_bytes();
    *free_bytes = card.size_bytes() - card.allocated_bytes();
    return Status::Ok;
}

Status allocate(std::int32_t device, std::size_t bytes, void** data, ErrorText* error) {
    if (machine->ends_capture("an allocation", error)) return Status::Failed;
    machine->open();
    *data =
        machine->cards[static_cast<std::size_t>(device)]->allocate(round_up(bytes, machine->options.allocation_bytes));
    machine->close();
    return *data == nullptr ? fail(error, Status::OutOfMemory, "out of memory") : Status::Ok;
}

Status free_memory(std::int32_t device, void* data, ErrorText* error) {
    if (machine->ends_capture("freeing memory", error)) return Status::Failed;
    machine->open();
    machine->cards[static_cast<std::size_t>(device)]->free(static_cast<std::byte*>(data));
    machine->close();
    return Status::Ok;
}

Status lock(void* data, std::size_t bytes, ErrorText* error) {
    if (machine->ends_capture("page-locking", error)) return Status::Failed;
    if (bytes > machine->options.lockable_bytes - std::min(machine->options.lockable_bytes, machine->locked_bytes))
        return fail(error, Status::OutOfMemory, "out of memory");
    const std::optional<bool> there = machine->is_locked(data, bytes);
    if (!there || *there) return fail(error, Status::Failed, "part or all of the range is registered already");
    machine->locked[static_cast<std::byte*>(data)] = bytes;
    machine->locked_bytes += bytes;
    return Status::Ok;
}

Status unlock(void* data, ErrorText* error) {
    if (machine->ends_capture("giving up page-locked memory", error)) return Status::Failed;
    const auto range = machine->locked.find(static_cast<std::byte*>(data));
    if (range == machine->locked.end()) return fail(error, Status::Failed, "the range is not registered");
    machine->locked_bytes -= range->second;
    machine->locked.erase(range);
    return Status::Ok;
}

Status allocate_host(std::size_t bytes, void** data, ErrorText* error) {
    *data = std::aligned_alloc(4096, round_up(bytes, std::size_t{4096}));
    CHECK(*data != nullptr);
    std::memset(*data, static_cast<int>(kPoison), bytes);
    const Status status = lock(*data, round_up(bytes, std::size_t{4096}), error);
    if (status != Status::Ok) std::free(*data);
    return status;
}

Status free_host(void* data, ErrorText* error) {
    const Status status = unlock(data, error);
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
    if (machine->fails()) return fail(error, Status::Failed, "an injected fault");
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
    stream.tasks.push_back({.work = work});
    machine->go_on();
    return Status::Ok;
}

Status make_event(std::int32_t, cuda::EventKind, void** event, ErrorText*) {
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

Status record(Place place, void* event, ErrorText*) {
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
    if (machine->ends_capture("asking for an event", error)) return Status::Failed;
    if (event_of(event).is_of_capture)
        return fail(error, Status::Failed, "asking for an event that was recorded in a capture");
    return event_of(event).done == event_of(event).recorded ? Status::Ok : Status::NotReady;
}

Status await(void* event, ErrorText* error) {
    if (machine->ends_capture("waiting for an event", error)) return Status::Failed;
    if (event_of(event).is_of_capture)
        return fail(error, Status::Failed, "waiting for an event that was recorded in a capture");
    machine->bring_about(event_of(event), event_of(event).recorded);
    return Status::Ok;
}

Status begin_capture(Place place, ErrorText* error) {
    if (machine->ends_capture("another capture", error)) return Status::Failed;
    stream_of(place).capture = std::make_unique<Graph>();
    return Status::Ok;
}

Status end_capture(Place place, void** graph, std::int64_t* n_nodes, ErrorText* error) {
    if (stream_of(place).capture == nullptr) return fail(error, Status::Failed, "the stream is not capturing");
    std::unique_ptr<Graph> captured = std::move(stream_of(place).capture);
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
    if (machine->fails()) return fail(error, Status::Failed, "an injected fault");
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
    *blas = new char;
    ++machine->n_blas;
    return Status::Ok;
}

Status free_blas(std::int32_t, void* blas, ErrorText*) {
    delete static_cast<char*>(blas);
    --machine->n_blas;
    return Status::Ok;
}

}  // namespace

Status enqueue_product(Place place, std::function<void()> work, ErrorText* error) {
    ++machine->n_prompt_products;
    return enqueue(place, std::move(work), error);
}

Status enqueue(Place place, std::function<void()> work, ErrorText* error) {
    Stream& stream = stream_of(place);
    if (machine->fails()) {
        if (stream.capture != nullptr) stream.capture->invalid = "an injected fault";
        return fail(error, Status::Failed, "an injected fault");
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
            .count_devices = count_devices,
            .device_properties = device_properties,
            .memory_info = memory_info,
            .allocate = allocate,
            .free = free_memory,
            .allocate_host = allocate_host,
            .free_host = free_host,
            .register_host = lock,
            .unregister_host = unlock,
            .make_stream = make_stream,
            .free_stream = free_stream,
            .synchronize = synchronize,
            .copy = copy,
            .make_event = make_event,
            .free_event = free_event,
            .record = record,
            .wait = wait,
            .query = query,
            .await = await,
            .elapsed = elapsed,
            .begin_capture = begin_capture,
            .end_capture = end_capture,
            .launch_graph = launch_graph,
            .free_graph = free_graph,
            .blas_version = blas_version,
            .make_blas = make_blas,
            .free_blas = free_blas};
}

Machine::Machine(const MachineOptions& options) : state_(std::make_unique<State>(options)) {
    CHECK(machine == nullptr, "one machine at a time");
    machine = state_.get();
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    CHECK(::sigaction(SIGSEGV, &action, &before) == 0);
}

Machine::~Machine() {
    CHECK(state_->streams.empty() && state_->n_events == 0 && state_->n_graphs == 0 && state_->locked.empty() &&
              allocated_bytes() == 0 && state_->n_blas == 0,
          "{} streams, {} events, {} graphs, {} host ranges, {} bytes and {} of cuBLASLt outlive their machine",
          state_->streams.size(), state_->n_events, state_->n_graphs, state_->locked.size(), allocated_bytes(),
          state_->n_blas);
    ::sigaction(SIGSEGV, &before, nullptr);
    machine = nullptr;
}

std::int64_t Machine::n_done() const {
    return state_->n_done;
}
std::int64_t Machine::n_waiting() const {
    std::int64_t n = 0;
    for (const auto& stream : state_->streams) n += std::ssize(stream->tasks);
    return n;
}
std::int64_t Machine::n_pageable_copies() const {
    return state_->n_pageable_copies;
}
std::int64_t Machine::n_kernels() const {
    return state_->n_kernels;
}
std::int64_t Machine::n_copies() const {
    return state_->n_copies;
}
std::int64_t Machine::n_graph_launches() const {
    return state_->n_graph_launches;
}
std::int64_t Machine::n_graphs() const {
    return state_->n_graphs;
}
void Machine::refuse_graphs(bool refuses) {
    state_->refuses_graphs = refuses;
}
std::int64_t Machine::n_prompt_products() const {
    return state_->n_prompt_products;
}
std::size_t Machine::allocated_bytes() const {
    std::size_t bytes = 0;
    for (const auto& card : state_->cards) bytes += card->allocated_bytes();
    return bytes;
}
void Machine::fail_in(std::int64_t n) {
    state_->fail_in = n;
}

Machine::Window::Window() {
    machine->open();
}
Machine::Window::~Window() {
    machine->close();
}

}  // namespace slipstream::emulation
