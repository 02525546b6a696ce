// Threads for work of microseconds on a shared desktop. Each CPU device has one pool; the calling thread works too.
//
// A job is cut into small ranges, which threads take one by one from an atomic counter. So a thread that loses its core
// delays one range, not a fixed part of the job. A worker can enter a job only while the job is open. The caller closes
// the job when no range is left and waits for the workers inside, never for one that has not woken yet: on a core that
// another program keeps busy, that would cost a scheduler time slice per job. After a job, workers spin for some
// microseconds, since in a forward pass the next op follows at once; then they park on a futex. Which thread computes a
// range never changes a result (batch invariance, E1).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace slipstream {

/// Non-owning reference to a callable `void(int64 begin, int64 end, int thread)`, which must outlive it.
class PieceFn {
public:
    // The constraint keeps this constructor from taking the place of the copy constructor. It is implicit, so that
    // callers can pass a lambda.
    template <typename F>
    // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
    requires(!std::is_same_v<std::remove_cvref_t<F>, PieceFn>) PieceFn(F&& fn)
        : object_(const_cast<void*>(static_cast<const void*>(&fn))),
          call_([](void* object, std::int64_t begin, std::int64_t end, int thread) {
              (*static_cast<std::remove_reference_t<F>*>(object))(begin, end, thread);
          }) {}
    void operator()(std::int64_t begin, std::int64_t end, int thread) const { call_(object_, begin, end, thread); }

private:
    void* object_;
    void (*call_)(void*, std::int64_t, std::int64_t, int);
};

class ThreadPool {
public:
    /// `n_threads` (1 to 1024, CHECKed) includes the caller of run(), so n_threads - 1 workers are started. Throws
    /// OutOfBudget if the system does not start that many.
    explicit ThreadPool(int n_threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    [[nodiscard]] int n_threads() const { return static_cast<int>(workers_.size()) + 1; }

    /// Calls fn(begin, end, thread) for ranges of at most `piece` (>= 1) items that cover [0, n_items) once; `thread`
    /// is in [0, n_threads). Returns when all calls have returned. Two threads must not call run() at the same time.
    /// `fn` must not throw and must not call run().
    void run(std::int64_t n_items, std::int64_t piece, PieceFn fn);

private:
    void stop();  // ends and joins all workers that were started
    void worker_loop(int thread);
    void take_pieces(int thread);

    struct Job {
        const PieceFn* fn = nullptr;
        std::int64_t n_items = 0;
        std::int64_t piece = 1;
    };
    // Fields of state_: job number in bits 16 to 31, whether the job is open in bit 15, number of workers inside in
    // bits 0 to 14. They are one word, so that a worker either enters before the caller closes the job, and is counted,
    // or does not enter.
    static constexpr std::uint32_t kOpen = 1U << 15;
    static constexpr std::uint32_t kInside = kOpen - 1;
    static constexpr std::uint32_t kNextJob = 1U << 16;

    Job job_;  // the latest job; written only while no worker is inside
    alignas(64) std::atomic<std::int64_t> next_{0};
    alignas(64) std::atomic<std::uint32_t> state_{0};
    std::atomic<bool> stop_{false};
    std::vector<std::thread> workers_;
};

}  // namespace slipstream
