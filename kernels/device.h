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

/// Owns device memory, which counts in the device's budget. Move-only; the device must outlive it. The contents are
/// undefined at first. Before the caller destroys a buffer, no stream may still use it.
class Buffer {
public:
    using Release = void (*)(void* owner, std::byte* data, std::size_t bytes) noexcept;

    Buffer() = default;
    /// The destructor calls `release` with `owner`, which is for `release` alone to interpret, `data` and `bytes`.
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

/// A point in a stream. It can be recorded repeatedly; each record is a new use, numbered from 1. Only one stream may
/// record it, or several streams whose work is ordered, so that uses complete in the order of their numbers.
class Event {
public:
    virtual ~Event() = default;
    /// Returns the number of uses recorded so far.
    [[nodiscard]] virtual std::uint64_t recorded() const = 0;
    /// Returns the number of uses before which all work is done. Never blocks.
    [[nodiscard]] virtual std::uint64_t completed() const = 0;
};

enum class StreamKind : std::uint8_t {
    Compute,  // ops and small copies; on a CPU device, calls run at once on the calling thread
    CopyIn,   // asynchronous copies from host to device over the link; on a CPU device, by a thread of its own
    CopyOut,  // asynchronous copies from device to host over the link, at the same time as CopyIn
};

/// Traffic on a device's link in one direction since the device was created.
struct LinkFigures {
    std::uint64_t bytes = 0;
    double busy_seconds = 0.0;  // seconds in which a copy was in progress
};

class Stream {
public:
    virtual ~Stream() = default;
    /// Copies `bytes` from `src` to `dst` in stream order. Both must stay alive until the stream has passed this point.
    /// The error of a failed copy is thrown by the next synchronize() of its stream, and by a compute stream's wait for
    /// an event recorded after the copy; later work of the copy's stream is skipped.
    virtual void copy(void* dst, const void* src, std::size_t bytes) = 0;
    /// Records the next use of `event` after all work enqueued so far and returns its number. Does not block.
    virtual std::uint64_t record(Event& event) = 0;
    /// Makes later work of this stream start after use `use` of `event`, which must have been recorded. If that use
    /// failed, a copy stream fails with the same error.
    virtual void wait(const Event& event, std::uint64_t use) = 0;
    /// Blocks the host until the stream is empty. Rethrows the error of work that failed in it.
    virtual void synchronize() = 0;

    /// Whether work of this stream can be captured as graphs (kernels/graph.h).
    [[nodiscard]] virtual bool has_graphs() const { return false; }
    /// Calls `enqueue` and returns what it enqueued as a graph (never null), without doing the work. `enqueue` may only
    /// enqueue ops, and copies within the device, on this stream. Throws CudaError or OutOfBudget if the device
    /// refuses, and whatever `enqueue` throws; the stream is then unchanged. Blocks the host during the calls;
    /// allocates.
    [[nodiscard]] virtual std::unique_ptr<Graph> capture(const std::function<void()>& /*enqueue*/) {
        CHECK(has_graphs(), "a graph on a device without graphs");
        return nullptr;
    }
    /// Enqueues the work of `graph`, which was captured on this stream; its host arrays are read now. Allocates
    /// nothing, and waits at most for the copy of the arrays of the previous launch. Returns false and enqueues nothing
    /// if the graph can no longer be used: workspace has moved, or the arrays need more room than the graph has.
    [[nodiscard]] virtual bool launch(Graph& /*graph*/, const GraphNumbers& /*numbers*/) {
        CHECK(has_graphs(), "a graph on a device without graphs");
        return false;
    }
};

class Device {
public:
    virtual ~Device() = default;
    [[nodiscard]] virtual DeviceKind kind() const = 0;
    /// Returns the name for messages: "cpu", "cuda:0".
    [[nodiscard]] virtual std::string_view name() const = 0;
    /// Returns the kernel variant, which decides the bits of results (batch invariance, E1): "scalar", "avx2",
    /// "avx512", "sm_89".
    [[nodiscard]] virtual std::string_view instruction_form() const = 0;
    /// Whether this device computes prompts with special kernels (MatmulArgs::prompt), whose bits may differ.
    [[nodiscard]] virtual bool has_prompt_kernels() const { return false; }
    [[nodiscard]] virtual Budget& budget() = 0;
    /// Returns 64-byte aligned device memory, counted in the budget under `tag`. Throws OutOfBudget, or IoError if the
    /// system has no memory. `what` names the purpose in errors.
    [[nodiscard]] virtual Buffer allocate(std::size_t bytes, MemoryTag tag, std::string_view what) = 0;
    /// Whether the host can read and write this device's memory directly. If not, bytes move only by streams, and only
    /// ops may dereference a pointer into that memory.
    [[nodiscard]] virtual bool shares_host_memory() const { return kind() == DeviceKind::Cpu; }
    /// Returns memory that the host can read and write and that this device copies at full speed. If the device shares
    /// host memory, it is device memory, counted in the budget under `tag`; else it is page-locked host memory, which
    /// is in no device's budget. All else as in allocate().
    [[nodiscard]] virtual Buffer allocate_host(std::size_t bytes, MemoryTag tag, std::string_view what) {
        return allocate(bytes, tag, what);
    }
    /// Registers whole pages of host memory, so that copies between them and this device are as fast as those of
    /// allocate_host(). Returns an empty string if that was done, or if there is nothing to do (shares_host_memory). If
    /// the system refuses, returns one line that says why; the pages stay pageable. A copy must stay within one
    /// registered range.
    [[nodiscard]] virtual std::string register_host(std::byte* /*data*/, std::size_t /*bytes*/) { return {}; }
    /// Undoes a register_host() of the same pages that was not refused. Must be called before the pages are unmapped.
    virtual void unregister_host(std::byte* /*data*/) noexcept {}
    [[nodiscard]] virtual std::unique_ptr<Stream> make_stream(StreamKind kind) = 0;
    [[nodiscard]] virtual std::unique_ptr<Event> make_event() = 0;
    /// link_in() returns the traffic of all CopyIn streams, link_out() that of all CopyOut streams.
    [[nodiscard]] virtual LinkFigures link_in() const = 0;
    [[nodiscard]] virtual LinkFigures link_out() const = 0;
    /// Passes a one-line notice for the user to the owner of the device; work continues.
    virtual void announce(std::string_view /*line*/) {}
    /// Returns the kernels of this device's backend.
    [[nodiscard]] virtual const OpTable& ops() const = 0;
};

/// Where an op runs: a device and one of its compute streams. A reference that is passed down; it owns neither.
struct ExecRef {
    Device& device;
    Stream& stream;
};

}  // namespace slipstream
