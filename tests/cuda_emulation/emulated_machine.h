// A machine with CUDA cards that are not there: the runtime half of the module's table (kernels/cuda/module_api.h) over
// host memory, so that CudaDevice and all above it run, and are caught where a card would not forgive.
//
// Memory of a card is a mapping that nobody may touch but work that is enqueued: while none runs its pages are closed,
// so a host access ends the process with a line that says so. Allocations stand between guard bands, which are looked
// at when they go, and come filled with bytes that are NaN in every float type. Page-locked host memory is told from
// other memory as the driver tells it: a copy may not cross the border of a registered range.
//
// Between the begin and the end of a capture it refuses what a driver refuses, and what a driver would let pass and a
// replay would not forgive: pageable host memory, events from outside. A graph's copies are looked at at each launch.
//
// When work is done is the test's choice, within what streams and events promise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/cuda/module_api.h"

namespace slipstream::emulation {

enum class Timing : std::uint8_t {
    AtOnce,       // in the order of the calls
    Latest,       // nothing before somebody waits for it
    CopiesEarly,  // compute streams as Latest; copy streams go on as far as the waits in them allow, after every call
                  // and after all that compute streams do
};
inline constexpr Timing kTimings[] = {Timing::AtOnce, Timing::Latest, Timing::CopiesEarly};

/// Calls of the table that can be made to fail.
enum class Call : std::uint8_t {
    Copy,
    Kernel,      // and launches of graphs
    Graph,       // the begin and the end of a capture
    Event,       // made, recorded, waited for, asked for
    Allocation,  // of card memory, of page-locked memory; page-locking
    Sum,         // of what stands for NCCL: a call for all ranks, and the making of communicators
};
inline constexpr int kCallKinds = 6;

enum class Nccl : std::uint8_t { None, DoesNotOpen, Serves };

struct MachineOptions {
    int n_cards = 1;
    std::int32_t sm = 89;
    std::size_t memory_bytes = std::size_t{1} << 30;  // of each card; address space alone until it is used
    Timing timing = Timing::AtOnce;
    std::size_t allocation_bytes = 1;  // what an allocation takes is rounded up to; a card: 2 MiB
    bool has_blas = true;              // what stands for cuBLASLt
    bool blas_opens = true;            // where it is there
    Nccl nccl = Nccl::None;            // what stands for it
    bool has_peers = true;             // each card reaches the memory of every other
    const char* architectures = "80";  // of the module
    bool runs_kernels = true;          // else the module has no code for its cards, whatever it says
    std::size_t lockable_bytes = static_cast<std::size_t>(-1);  // registrations beyond it are refused
};

/// One at a time. What table() is asked for happens on the machine that lives.
class Machine {
public:
    explicit Machine(const MachineOptions& options);
    /// CHECKs that streams, events and memory are given back.
    ~Machine();
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;

    /// The table, its kernels included.
    [[nodiscard]] const cuda::Module& table() const;

    /// Work done so far, copies included.
    [[nodiscard]] std::int64_t n_done() const;
    /// Work enqueued and not done.
    [[nodiscard]] std::int64_t n_waiting() const;
    /// Copies on streams for copies that a card would have made slowly and under the host's eyes, since their host side
    /// is not page-locked.
    [[nodiscard]] std::int64_t n_pageable_copies() const;
    /// Calls by which the host has enqueued: launches of kernels (of an attention, a matmul: one), copies, launches of
    /// graphs. What was captured counts as nothing before, and as one launch each time.
    [[nodiscard]] std::int64_t n_kernels() const;
    [[nodiscard]] std::int64_t n_copies() const;
    [[nodiscard]] std::int64_t n_graph_launches() const;
    /// Waits of the host for a whole stream.
    [[nodiscard]] std::int64_t n_waits() const;
    /// Graphs that live.
    [[nodiscard]] std::int64_t n_graphs() const;
    /// Whether captures fail at their end for want of memory.
    void refuse_graphs(bool refuses);
    /// Bytes of card memory that are allocated.
    [[nodiscard]] std::size_t allocated_bytes() const;
    /// Bytes of host memory that are page-locked.
    [[nodiscard]] std::size_t locked_bytes() const;
    /// The card that the last page-locking was asked of; -1: none was.
    [[nodiscard]] std::int32_t locking_card() const;
    /// Products over prompt so far, by what stands for cuBLASLt.
    [[nodiscard]] std::int64_t n_prompt_products() const;
    /// The n-th copy or kernel from now on fails at its call; 0: none.
    void fail_in(std::int64_t n);
    /// The n-th call of one kind. Allocations fail for want of memory.
    void fail_in(std::int64_t n, Call kind);
    /// Calls of a kind so far, those that failed included.
    [[nodiscard]] std::int64_t n_calls(Call kind) const;
    /// Calls of what stands for NCCL, each for all ranks; communicators that live.
    [[nodiscard]] std::int64_t n_sums() const;
    [[nodiscard]] std::int64_t n_communicators() const;
    /// The next such call fails at that rank's part.
    void fail_sum_of(std::int32_t rank);
    /// Whether no communicators are to be had.
    void refuse_communicators(bool refuses);

    /// Opens the cards' memory to the host for as long as it lives: for tests that look into it.
    class Window {
    public:
        Window();
        ~Window();
        Window(const Window&) = delete;
        Window& operator=(const Window&) = delete;
    };

    struct State;

private:
    std::unique_ptr<State> state_;
};

/// What a kernel of the table does: `work` when its turn comes, with the cards' memory open.
[[nodiscard]] cuda::Status enqueue(cuda::Place place, std::function<void()> work, cuda::ErrorText* error);

/// A product over prompt: `work` as above, counted.
[[nodiscard]] cuda::Status enqueue_product(cuda::Place place, std::function<void()> work, cuda::ErrorText* error);

/// The runtime half of a table; the kernels' entries are null.
[[nodiscard]] cuda::Module runtime_table();

}  // namespace slipstream::emulation
