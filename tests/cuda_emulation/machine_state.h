// What an emulated machine is made of: cards, streams with their queues, events, graphs; and when enqueued work runs.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/cuda/module_api.h"
#include "tests/cuda_emulation/card_memory.h"
#include "tests/cuda_emulation/emulated_machine.h"

namespace slipstream::emulation {

using Clock = std::chrono::steady_clock;

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

/// What several streams do together: once all have come to it.
struct Meeting {
    struct Side {
        Stream* stream = nullptr;
        std::shared_ptr<const bool> aborted{};  // then it ends here alone, and leaves anything behind
        float* to = nullptr;
        std::size_t n_floats = 0;
    };
    std::vector<Side> sides;
    std::function<void()> work;
    bool is_done = false;
};

struct Stream {
    struct Task {
        std::function<void()> work;  // or
        Event* event = nullptr;
        std::uint64_t use = 0;
        bool records = false;  // else waits; or
        std::shared_ptr<Meeting> meeting{};
        CopyTask copy{};  // what `work` copies, if it is a copy
    };
    bool is_for_copies = false;
    std::deque<Task> tasks;
    std::unique_ptr<Graph> capture;  // null: work is enqueued
};

struct Machine::State {
    explicit State(const MachineOptions& wanted) : options(wanted) {
        for (int i = 0; i < options.n_cards; ++i) cards.push_back(std::make_unique<CardMemory>(options.memory_bytes));
    }

    MachineOptions options;
    std::vector<std::unique_ptr<CardMemory>> cards;
    const std::thread::id thread = std::this_thread::get_id();  // which alone may capture
    std::recursive_mutex calls_mutex;          // a call of the table at a time: ranks call from threads of their own
    mutable std::mutex locked_mutex;           // of the next three: host memory is locked by other threads, too
    std::map<std::byte*, std::size_t> locked;  // host ranges
    std::size_t locked_bytes = 0;
    std::int32_t locking_card = -1;
    std::vector<std::unique_ptr<Stream>> streams;
    std::int64_t n_events = 0;
    std::int64_t n_done = 0;
    std::int64_t n_pageable_copies = 0;
    std::int64_t n_kernels = 0;
    std::int64_t n_copies = 0;
    std::int64_t n_waits = 0;
    std::int64_t n_graph_launches = 0;
    std::int64_t n_graphs = 0;
    std::int64_t n_prompt_products = 0;
    std::int64_t n_blas = 0;  // made and not freed
    std::int64_t n_communicators = 0;
    std::int64_t n_sums = 0;
    std::int32_t failing_sum = -1;  // the rank where the next one fails
    bool refuses_communicators = false;
    std::int64_t fail_in = 0;    // calls until one of failing_kinds fails; 0: none does
    unsigned failing_kinds = 0;  // bit() of each
    std::int64_t n_calls[kCallKinds]{};
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
        if (task.meeting) return meet(stream, task.meeting);
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
    static bool is_at(const Stream& stream, const std::shared_ptr<Meeting>& meeting) {
        return !stream.tasks.empty() && stream.tasks.front().meeting == meeting;
    }
    // What all of its streams do at once; one that was given up ends alone.
    bool meet(Stream& stream, const std::shared_ptr<Meeting> meeting) {
        CHECK(n_open > 0);
        for (const Meeting::Side& side : meeting->sides) {
            if (side.stream != &stream || !*side.aborted) continue;
            std::fill_n(side.to, side.n_floats, std::numeric_limits<float>::quiet_NaN());
            stream.tasks.pop_front();
            ++n_done;
            return true;
        }
        for (const Meeting::Side& side : meeting->sides)
            if (!is_at(*side.stream, meeting)) return false;
        meeting->work();
        meeting->is_done = true;
        for (const Meeting::Side& side : meeting->sides) {
            side.stream->tasks.pop_front();
            ++n_done;
        }
        return true;
    }
    void bring_together(const std::shared_ptr<Meeting> meeting) {
        for (const Meeting::Side& side : meeting->sides) {
            CHECK(!*side.aborted, "a kernel waits for good for one that was given up");
            while (!meeting->is_done && !is_at(*side.stream, meeting)) advance(*side.stream);
        }
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
        if (!step(stream)) {
            const Stream::Task& task = stream.tasks.front();
            return task.meeting ? bring_together(task.meeting) : bring_about(*task.event, task.use);
        }
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
    static constexpr unsigned bit(Call kind) { return 1U << static_cast<unsigned>(kind); }
    /// Counts a call; whether it is the one that fails.
    bool fails(Call kind) {
        ++n_calls[static_cast<std::size_t>(kind)];
        return (failing_kinds & bit(kind)) != 0 && fail_in > 0 && --fail_in == 0;
    }

    // A call that no capture survives, where this thread has one going on (cudaStreamCaptureModeThreadLocal).
    bool ends_capture(const char* call, cuda::ErrorText* error) {
        if (std::this_thread::get_id() != thread) return false;
        const auto captures = [](const auto& stream) { return stream->capture != nullptr; };
        const auto found = std::ranges::find_if(streams, captures);
        return found != streams.end() && ends_capture_of(**found, call, error);
    }
    static bool ends_capture_of(Stream& stream, const char* call, cuda::ErrorText* error) {
        if (stream.capture == nullptr) return false;
        const std::string text = std::string("operation not permitted when stream is capturing: ") + call;
        if (stream.capture->invalid.empty()) stream.capture->invalid = text;
        std::snprintf(error->text, sizeof(error->text), "%s", text.c_str());
        return true;
    }

    // Whether a copy that is enqueued and not done reads or writes some of the host's bytes.
    [[nodiscard]] bool has_copy_of(const std::byte* begin, std::size_t bytes) const {
        const auto touches = [&](const void* side, std::size_t n) {
            const auto* at = static_cast<const std::byte*>(side);
            return n > 0 && at < begin + bytes && begin < at + n;
        };
        return std::ranges::any_of(streams, [&](const auto& stream) {
            return std::ranges::any_of(stream->tasks, [&](const Stream::Task& task) {
                return touches(task.copy.dst, task.copy.bytes) || touches(task.copy.src, task.copy.bytes);
            });
        });
    }

    // Whether the host's bytes are page-locked; false also where none of them is. Nothing where a border is crossed.
    [[nodiscard]] std::optional<bool> is_locked(const void* data, std::size_t bytes) const {
        const auto* begin = static_cast<const std::byte*>(data);
        const std::scoped_lock lock(locked_mutex);
        for (const auto& [start, size] : locked) {
            const bool first = begin >= start && begin < start + size;
            const bool last = begin + bytes > start && begin + bytes <= start + size;
            if (first && last) return true;
            if (first || last || (begin < start && begin + bytes > start + size)) return std::nullopt;
        }
        return false;
    }
};

/// The machine that the runtime's table acts on; null where there is none.
extern Machine::State* machine;

}  // namespace slipstream::emulation
