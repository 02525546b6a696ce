// Threads for microsecond work on a shared desktop. One pool per device; the calling thread works too.
//
// A job is a range of small pieces taken dynamically from one atomic counter, so that a thread that loses its core
// delays one piece, not a fixed share. A worker enters a job only while it is open; the caller closes it when no piece
// is left and waits for those inside, never for one that has not woken: on a core with a busy neighbour that would cost
// a scheduler slice a job. Workers spin for a few microseconds after a job (the next op follows at once in a forward
// pass), then park on a futex. Which thread computes a piece never changes a result (E1).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace slipstream {

/// Non-owning reference to a callable `void(int64 begin, int64 end, int thread)`.
class PieceFn {
public:
    // Constrained, so that it hides no copy; implicit, since it is passed at call sites as a lambda.
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
    /// `n_threads` >= 1 in all, the caller of run() included; n_threads - 1 workers are started. Throws OutOfBudget
    /// where the system does not start that many.
    explicit ThreadPool(int n_threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    [[nodiscard]] int n_threads() const { return static_cast<int>(workers_.size()) + 1; }

    /// Calls fn(begin, end, thread) for pieces of at most `piece` items that cover [0, n_items) once; thread is in
    /// [0, n_threads). Returns when all are done. One caller at a time; fn must not throw and must not call run().
    void run(std::int64_t n_items, std::int64_t piece, PieceFn fn);

private:
    void stop();  // ends and joins the workers that run
    void worker_loop(int thread);
    void take_pieces(int thread);

    struct Job {
        const PieceFn* fn = nullptr;
        std::int64_t n_items = 0;
        std::int64_t piece = 1;
    };
    // One word, so that entering and closing cannot miss each other: number of the job << 16 | open << 15 | workers
    // inside.
    static constexpr std::uint32_t kOpen = 1U << 15;
    static constexpr std::uint32_t kInside = kOpen - 1;
    static constexpr std::uint32_t kNextJob = 1U << 16;

    Job job_;  // written while no worker is inside
    alignas(64) std::atomic<std::int64_t> next_{0};
    alignas(64) std::atomic<std::uint32_t> state_{0};
    std::atomic<bool> stop_{false};
    std::vector<std::thread> workers_;
};

}  // namespace slipstream
