// One emulated block: its threads as fibers of the calling thread, its shared memory, the places where threads meet.
// Blocks run one after another. What a card would leave undefined ends the program with a line that names the block,
// the thread and where the others stand: an index outside shared memory, a barrier or warp operation that not all
// reach, a misaligned access, an asynchronous copy that is never waited for. Shared memory starts as NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "tests/cuda_emulation/fiber.h"
#include "tests/cuda_emulation/schedule.h"

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned size_x = 1, unsigned size_y = 1, unsigned size_z = 1) : x(size_x), y(size_y), z(size_z) {}
};

namespace slipstream::emulation {

inline constexpr unsigned kWarpThreads = 32;
/// What every card from sm_80 on gives a block (sm_86 and sm_89 give no more).
inline constexpr std::size_t kMaxSharedBytes = 99 << 10;

enum class ThreadState : std::uint8_t { Ready, InWarp, InBarrier, Done };

struct PendingCopy {
    char* dst;
    const void* src;
    std::uint32_t n_bytes;  // 16, or 0: zeros
    int group;
};

struct Thread {
    Fiber* fiber = nullptr;
    ThreadState state = ThreadState::Ready;
    unsigned linear = 0;
    uint3 index{};
    const char* where = "its start";
    std::vector<PendingCopy> copies;
    int open_group = 0;

    [[nodiscard]] unsigned lane() const { return linear % kWarpThreads; }
};

/// What lanes lay down for each other. Two sets, used in turn: a lane may be in the next operation while others still
/// read the last one's.
struct Warp {
    unsigned n_lanes = 0;
    unsigned arrived = 0;
    unsigned turn = 0;
    const char* where = "";
    std::uint32_t slot[2][kWarpThreads][10];
    float tile[2][16][8];
};

struct Block {
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    std::vector<unsigned> order;     // threads as the schedule takes them
    std::vector<unsigned> place_of;  // thread -> its place in `order`
    unsigned n_threads = 0;
    unsigned alive = 0;
    unsigned in_barrier = 0;
    uint3 index{};
    dim3 block_dim;
    dim3 grid_dim;
    char* shared = nullptr;  // aligned to 128
    std::size_t shared_bytes = 0;
    Schedule schedule;
    const std::function<void()>* kernel = nullptr;
    Fiber home;
};

// Of the calling thread, while a kernel runs. constinit: no wrapper is called to reach them.
extern constinit thread_local Block* block;
extern constinit thread_local Thread* thread;

/// Ends the program: what the running thread did, and where all others stand.
[[noreturn]] void fail(std::string_view what);

/// Lets others run until this thread is ready again.
void yield();
void block_barrier();

/// The running thread's warp, and its lane's place in the set in use.
[[nodiscard]] inline Warp& own_warp() {
    return block->warps[thread->linear / kWarpThreads];
}
[[nodiscard]] inline std::uint32_t* own_slot() {
    Warp& warp = own_warp();
    return warp.slot[warp.turn][thread->lane()];
}
/// All lanes meet; the last to come runs `last` (may be null) before any goes on. Returns the set of slots that this
/// operation used.
unsigned warp_meet(const char* where, void (*last)(Warp& warp, unsigned turn));

/// Runs `kernel` for every block of the grid, in order.
void run_grid(dim3 grid_dim, dim3 block_dim, std::size_t shared_bytes, const std::function<void()>& kernel);

/// Kernels that have been run so far: what a card would have launched.
[[nodiscard]] std::int64_t n_grids_run();
/// Blocks of the last of them.
[[nodiscard]] std::int64_t n_blocks_of_last_grid();

}  // namespace slipstream::emulation
