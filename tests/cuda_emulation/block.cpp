#include "tests/cuda_emulation/block.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>

#include <fmt/format.h>

namespace slipstream::emulation {

constinit thread_local Block* block = nullptr;
constinit thread_local Thread* thread = nullptr;

namespace {

std::atomic<std::int64_t> grids_run = 0;
std::atomic<std::int64_t> blocks_of_last_grid = 0;

constexpr std::uint32_t kPoison = 0x7fc0deadU;  // a NaN as a float, and in each half as a half or bfloat16
constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kMaxGridYZ = 65535;

std::atomic<Schedule> chosen{Schedule{}};

/// Stacks of this thread, kept from launch to launch.
std::deque<Fiber>& fibers() {
    thread_local std::deque<Fiber> all;
    return all;
}

void hand_over(Thread& next, Fiber::Leave leave) {
    Thread& me = *thread;
    thread = &next;
    Fiber::switch_to(*me.fiber, *next.fiber, leave);
}

void release_barrier_if_full() {
    if (block->in_barrier == 0 || block->in_barrier != block->alive) return;
    block->in_barrier = 0;
    for (Thread& t : block->threads)
        if (t.state == ThreadState::InBarrier) t.state = ThreadState::Ready;
}

/// The next ready thread. Lockstep goes round from the running one; run-ahead always starts from the front.
Thread& next_ready() {
    const unsigned n = block->n_threads;
    const unsigned from = block->schedule.order == Order::Lockstep ? block->place_of[thread->linear] + 1 : 0;
    for (unsigned i = 0, place = from; i < n; ++i, ++place) {
        if (place == n) place = 0;
        Thread& candidate = block->threads[block->order[place]];
        if (candidate.state == ThreadState::Ready) return candidate;
    }
    fail("a barrier or a warp operation that not all threads reach");
}

void thread_main() {
    (*block->kernel)();
    if (!thread->copies.empty()) fail("ends with an asynchronous copy that is not waited for");
    thread->state = ThreadState::Done;
    --block->alive;
    release_barrier_if_full();
    if (block->alive > 0) hand_over(next_ready(), Fiber::Leave::ForGood);
    Fiber::switch_to(*thread->fiber, block->home, Fiber::Leave::ForGood);
}

void start_block(Block& b) {
    b.alive = b.n_threads;
    b.in_barrier = 0;
    for (std::size_t i = 0; i + 4 <= b.shared_bytes; i += 4) std::memcpy(b.shared + i, &kPoison, 4);
    for (unsigned w = 0; w < b.warps.size(); ++w) {
        b.warps[w].n_lanes = std::min(kWarpThreads, b.n_threads - w * kWarpThreads);
        b.warps[w].arrived = 0;
    }
    for (unsigned i = 0; i < b.n_threads; ++i) {
        Thread& t = b.threads[i];
        t.fiber = &fibers()[i];
        t.fiber->start_at(&thread_main);
        t.state = ThreadState::Ready;
        t.linear = i;
        t.index = {i % b.block_dim.x, i / b.block_dim.x % b.block_dim.y, i / (b.block_dim.x * b.block_dim.y)};
        t.where = "its start";
        t.open_group = 0;
    }
}

void check_launch(dim3 grid_dim, dim3 block_dim, std::size_t shared_bytes) {
    const char* wrong = nullptr;
    if (grid_dim.x == 0 || grid_dim.y == 0 || grid_dim.z == 0 || block_dim.x * block_dim.y * block_dim.z == 0)
        wrong = "an empty grid or block";
    if (grid_dim.y > kMaxGridYZ || grid_dim.z > kMaxGridYZ) wrong = "a grid over 65535 in y or z";
    if (block_dim.x * block_dim.y * block_dim.z > kMaxThreads) wrong = "over 1024 threads a block";
    if (shared_bytes > kMaxSharedBytes) wrong = "over 99 KiB of shared memory a block";
    if (block != nullptr) wrong = "a launch inside a kernel";
    if (wrong == nullptr) return;
    fmt::print(stderr, "emulation: launch with {}: grid [{}, {}, {}], block [{}, {}, {}], {} bytes of shared memory\n",
               wrong, grid_dim.x, grid_dim.y, grid_dim.z, block_dim.x, block_dim.y, block_dim.z, shared_bytes);
    std::abort();
}

}  // namespace

std::string schedule_name(Schedule schedule) {
    const char* const orders[] = {"Lockstep", "RunAhead", "ReverseRunAhead"};
    return fmt::format("{}_{}", orders[static_cast<int>(schedule.order)],
                       schedule.copies == CopyLands::AtIssue ? "CopiesAtIssue" : "CopiesAtWait");
}

void set_schedule(Schedule schedule) {
    chosen.store(schedule);
}
Schedule current_schedule() {
    return chosen.load();
}

void fail(std::string_view what) {
    fmt::print(stderr, "emulation: {}: block [{}, {}, {}] thread {} at {}\n", what, block->index.x, block->index.y,
               block->index.z, thread->linear, thread->where);
    const char* const names[] = {"ready", "in a warp operation", "in a barrier", "done"};
    for (const Thread& t : block->threads)
        if (t.linear % kWarpThreads == 0 && t.state != ThreadState::Done)
            fmt::print(stderr, "  thread {}: {}, at {}\n", t.linear, names[static_cast<int>(t.state)], t.where);
    std::abort();
}

void yield() {
    Thread& next = next_ready();
    if (&next != thread) hand_over(next, Fiber::Leave::ComesBack);
}

void block_barrier() {
    thread->where = "sync_threads";
    thread->state = ThreadState::InBarrier;
    ++block->in_barrier;
    release_barrier_if_full();
    if (thread->state != ThreadState::Ready) yield();
}

unsigned warp_meet(const char* where, void (*last)(Warp& warp, unsigned turn)) {
    Warp& warp = own_warp();
    const unsigned turn = warp.turn;
    thread->where = where;
    if (warp.arrived > 0 && warp.where != where && std::strcmp(warp.where, where) != 0)
        fail(fmt::format("meets a lane of its warp that is in {}", warp.where));
    warp.where = where;
    if (++warp.arrived < warp.n_lanes) {
        thread->state = ThreadState::InWarp;
        yield();
        return turn;
    }
    if (last != nullptr) last(warp, turn);
    warp.arrived = 0;
    warp.turn ^= 1U;
    const unsigned first = thread->linear / kWarpThreads * kWarpThreads;
    for (unsigned lane = 0; lane < warp.n_lanes; ++lane) block->threads[first + lane].state = ThreadState::Ready;
    return turn;
}

std::int64_t n_grids_run() {
    return grids_run;
}
std::int64_t n_blocks_of_last_grid() {
    return blocks_of_last_grid;
}

void run_grid(dim3 grid_dim, dim3 block_dim, std::size_t shared_bytes, const std::function<void()>& kernel) {
    check_launch(grid_dim, block_dim, shared_bytes);
    ++grids_run;
    blocks_of_last_grid = std::int64_t{grid_dim.x} * grid_dim.y * grid_dim.z;
    Block b;
    b.n_threads = block_dim.x * block_dim.y * block_dim.z;
    b.threads.resize(b.n_threads);
    b.warps.resize((b.n_threads + kWarpThreads - 1) / kWarpThreads);
    b.block_dim = block_dim;
    b.grid_dim = grid_dim;
    b.schedule = current_schedule();
    b.kernel = &kernel;
    b.shared_bytes = shared_bytes;
    const std::unique_ptr<char[]> memory(new char[shared_bytes + 128]);
    b.shared = memory.get() + (128 - reinterpret_cast<std::uintptr_t>(memory.get()) % 128) % 128;
    while (fibers().size() < b.n_threads) fibers().emplace_back();
    b.place_of.resize(b.n_threads);
    for (unsigned i = 0; i < b.n_threads; ++i)
        b.order.push_back(b.schedule.order == Order::ReverseRunAhead ? b.n_threads - 1 - i : i);
    for (unsigned i = 0; i < b.n_threads; ++i) b.place_of[b.order[i]] = i;
    for (unsigned z = 0; z < grid_dim.z; ++z)
        for (unsigned y = 0; y < grid_dim.y; ++y)
            for (unsigned x = 0; x < grid_dim.x; ++x) {
                b.index = {x, y, z};
                start_block(b);
                block = &b;
                thread = &b.threads[b.order[0]];
                Fiber::switch_to(b.home, *thread->fiber, Fiber::Leave::ComesBack);
                block = nullptr;
                thread = nullptr;
            }
}

}  // namespace slipstream::emulation
