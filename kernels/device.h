// Where bytes live and who computes: Device, Buffer, Stream, Event. A CPU device and a CUDA device look alike from
// above; what a caller may rely on is written here and holds on both.
//
// Ordering: work on one stream happens in the order of its calls. Across streams, `record` gives a use number of an
// event and `wait` names the use it waits for; waiting for a use that has not been recorded is an error (CHECK) on
// every device, since CUDA would silently wait for the previous one. So the caller enqueues compute, record, then the
// copy that waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/base/budget.h"
#include "kernels/base/check.h"
#include "kernels/graph.h"

namespace slipstream {

struct OpTable;

enum class DeviceKind : std::uint8_t { Cpu, Cuda };

/// Owns device memory, counted in the device's budget. Move-only; the device must outlive it. Contents start
/// undefined. Whoever drops a buffer has made sure that no stream still uses it.
class Buffer {
public:
    using Release = void (*)(void* owner, std::byte* data, std::size_t bytes) noexcept;

    Buffer() = default;
    /// `release` is called with `owner`, whatever that is to it.
    Buffer(std::byte* data, std::size_t bytes, Reservation reservation, Release release, void* owner = nullptr)
        : data_(data), bytes_(bytes), reservation_(std::move(reservation)), release_(release), owner_(owner) {}
    Buffer(Buffer&& other) noexcept { *this = std::move(other); }
    Buffer& operator=(Buffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        std::swap(reservation_, other.reservation_);
        std::swap(release_, other.release_);
        std::swap(owner_, other.owner_);
        return *this;
    }
    ~Buffer() {
        if (data_ != nullptr) release_(owner_, data_, bytes_);
    }

    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] std::size_t size_bytes() const { return bytes_; }

private:
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
    Reservation reservation_;
    Release release_ = nullptr;
    void* owner_ = nullptr;
};

/// A point in a stream that can be recorded again and again; each record is a new use, numbered from 1. Recorded by
/// one stream, or by several whose work is ordered, so that uses are done in the order of their numbers.
class Event {
public:
    virtual ~Event() = default;
    /// Uses recorded so far.
    [[nodiscard]] virtual std::uint64_t recorded() const = 0;
    /// Uses whose work is done. Never blocks.
    [[nodiscard]] virtual std::uint64_t completed() const = 0;
};

enum class StreamKind : std::uint8_t {
    Compute,  // ops and small copies; on a CPU device calls run at once on the calling thread
    CopyIn,   // asynchronous copies from host to device over the link; on a CPU device a thread of its own
    CopyOut,  // the same from device to host; both directions run at once
};

/// What has crossed a device's link in one direction since the device was made.
struct LinkFigures {
    std::uint64_t bytes = 0;
    double busy_seconds = 0.0;  // with a copy under way
};

class Stream {
public:
    virtual ~Stream() = default;
    /// Copies `bytes` from `src` to `dst` in stream order. Both stay alive until the stream has passed this point. A
    /// copy that fails is thrown by the next synchronize() of its stream, and by a compute stream's wait for an event
    /// recorded behind it; what stands behind it in the stream is skipped.
    virtual void copy(void* dst, const void* src, std::size_t bytes) = 0;
    /// Records the next use of `event` behind all work enqueued so far; returns its number. Does not block.
    virtual std::uint64_t record(Event& event) = 0;
    /// Later work of this stream starts after use `use` of `event`. The use must have been recorded. A copy stream
    /// takes the failure of a use over as its own.
    virtual void wait(const Event& event, std::uint64_t use) = 0;
    /// Blocks the host until the stream is empty; rethrows what failed in it.
    virtual void synchronize() = 0;

    /// Whether this stream's work can be kept as graphs (kernels/graph.h).
    [[nodiscard]] virtual bool has_graphs() const { return false; }
    /// Calls `enqueue`, which enqueues ops and copies within the device on this stream and nothing else; none of it is
    /// done. Never null. Throws CudaError or OutOfBudget where the device refuses, and what `enqueue` throws; the
    /// stream is then as before. Blocks the host for the time of the calls; allocates.
    [[nodiscard]] virtual std::unique_ptr<Graph> capture(const std::function<void()>& /*enqueue*/) {
        CHECK(has_graphs(), "a graph on a device without graphs");
        return nullptr;
    }
    /// Enqueues what `graph`, captured on this stream, holds, with its host arrays read now. Allocates nothing, and
    /// waits at most for the copy of the arrays of the launch before. False, and nothing is enqueued, where it serves
    /// no more: workspace has moved, or the arrays need more room than the graph has.
    [[nodiscard]] virtual bool launch(Graph& /*graph*/, const GraphNumbers& /*numbers*/) {
        CHECK(has_graphs(), "a graph on a device without graphs");
        return false;
    }
};

class Device {
public:
    virtual ~Device() = default;
    [[nodiscard]] virtual DeviceKind kind() const = 0;
    /// "cpu", "cuda:0".
    [[nodiscard]] virtual std::string_view name() const = 0;
    /// The instruction form that decides the bits of a result (E1): "scalar", "avx2", "avx512", "sm_89".
    [[nodiscard]] virtual std::string_view instruction_form() const = 0;
    /// Whether prompts are computed by kernels of their own (MatmulArgs::prompt), whose bits may differ.
    [[nodiscard]] virtual bool has_prompt_kernels() const { return false; }
    [[nodiscard]] virtual Budget& budget() = 0;
    /// 64-byte aligned memory; throws OutOfBudget, or IoError where the system has none. `what` names it in errors.
    [[nodiscard]] virtual Buffer allocate(std::size_t bytes, MemoryTag tag, std::string_view what) = 0;
    /// Whether the host reads and writes this device's memory as its own. Where it does not, bytes go to and fro by
    /// streams alone, and nobody but an op may look behind a pointer into it.
    [[nodiscard]] virtual bool shares_host_memory() const { return kind() == DeviceKind::Cpu; }
    /// Memory that the host reads and writes and this device's copies reach at full speed: its own where it shares
    /// memory, counted in the budget under `tag`; else page-locked memory of the host, which is in no device's budget.
    /// Otherwise as allocate().
    [[nodiscard]] virtual Buffer allocate_host(std::size_t bytes, MemoryTag tag, std::string_view what) {
        return allocate(bytes, tag, what);
    }
    /// Makes copies between this device and whole pages of host memory as quick as those of allocate_host(). One line
    /// where the system refuses, which leaves them pageable; empty where it did, or where there is nothing to do
    /// (shares_host_memory). A range is copied from or to within itself, never across two.
    [[nodiscard]] virtual std::string register_host(std::byte* /*data*/, std::size_t /*bytes*/) { return {}; }
    /// Undoes a register_host() of the same pages that was not refused, before they are given back.
    virtual void unregister_host(std::byte* /*data*/) noexcept {}
    [[nodiscard]] virtual std::unique_ptr<Stream> make_stream(StreamKind kind) = 0;
    [[nodiscard]] virtual std::unique_ptr<Event> make_event() = 0;
    /// What streams of kind CopyIn and CopyOut have carried.
    [[nodiscard]] virtual LinkFigures link_in() const = 0;
    [[nodiscard]] virtual LinkFigures link_out() const = 0;
    /// Tells whoever made the device what a user should know though work goes on, in one line.
    virtual void announce(std::string_view /*line*/) {}
    /// The kernels of this device's backend.
    [[nodiscard]] virtual const OpTable& ops() const = 0;
};

/// Where an op runs: a device and one of its compute streams. Passed down, never owned.
struct ExecRef {
    Device& device;
    Stream& stream;
};

}  // namespace slipstream
