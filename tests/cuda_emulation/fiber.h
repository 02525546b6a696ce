// Switching between stacks of one thread: the emulated threads of a block. Own assembly on x86-64, ucontext elsewhere.
// AddressSanitizer is told of every switch. Fibers are never unwound: the last switch away from one drops its frames.
#pragma once

#include <cstddef>
#include <memory>

namespace slipstream::emulation {

inline constexpr std::size_t kFiberStackBytes = 128 << 10;

struct FiberContext;

/// One stack, with where it stands. The default one stands for the thread's own stack.
class Fiber {
public:
    Fiber();
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    /// Gives it a stack and an entry, which must not return; forgets what it ran before.
    void start_at(void (*entry)());

    /// From `from`, which is running, to `to`. `leaving`: `from` is never switched to again before its next start_at.
    enum class Leave { ComesBack, ForGood };
    static void switch_to(Fiber& from, Fiber& to, Leave leave);

private:
    static void run_entry();

    std::unique_ptr<FiberContext> context_;
};

}  // namespace slipstream::emulation
