// What random walks over targets share: numbers drawn by a seed, faults that come and go, and how a walk ends.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu_device.h"
#include "kernels/cpu_faults.h"

namespace slipstream {

/// A walk has found an invariant broken.
struct Broken {
    std::string text;
};

class Dice {
public:
    explicit Dice(std::uint32_t seed) : random_(seed) {}
    /// [0, n)
    [[nodiscard]] std::int64_t below(std::int64_t n) {
        return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n));
    }
    [[nodiscard]] bool one_in(std::int64_t n) { return below(n) == 0; }
    template <typename T>
    [[nodiscard]] T pick(std::initializer_list<T> of) {
        return *(of.begin() + below(static_cast<std::int64_t>(of.size())));
    }
    [[nodiscard]] std::uint32_t seed() { return static_cast<std::uint32_t>(random_()); }

private:
    std::mt19937_64 random_;
};

/// Faults of several CPU devices, one of which is struck now and then.
class WalkFaults {
public:
    explicit WalkFaults(std::size_t n_devices) : all_(n_devices) {
        for (CpuFaults& each : all_) each.stall_after = std::chrono::milliseconds(60);
    }
    [[nodiscard]] CpuDeviceOptions device(std::size_t rank, Dice& dice) {
        return {.n_threads = 1, .link_bytes_per_second = dice.one_in(2) ? 3e8 : 0.0, .faults = &all_[rank]};
    }
    void strike(Dice& dice) {
        CpuFaults& struck = all_[dice.below(std::ssize(all_))];
        const auto kind = static_cast<std::size_t>(dice.below(std::ssize(kKinds)));
        struck.*kKinds[kind] = 1 + dice.below(kind == 0 ? 200 : 40);
    }
    void clear() {
        for (CpuFaults& each : all_)
            for (const auto kind : kKinds) each.*kind = 0;
    }

private:
    static constexpr std::atomic<std::int64_t> CpuFaults::*kKinds[] = {
        &CpuFaults::ops_until_failure, &CpuFaults::rows_until_failure, &CpuFaults::copies_until_failure,
        &CpuFaults::copies_until_stall};
    std::deque<CpuFaults> all_;
};

/// What a walk has come by: a walk that shows nothing is seen.
struct WalkFigures {
    std::int64_t n_steps = 0;
    std::int64_t n_checked = 0;  // rows of logits, or slots of views
    std::int64_t n_prompts = 0;  // layer by layer
    std::int64_t n_failures = 0;
};

/// Walks of a seed. `with_faults`: devices fail now and then. Throws Broken.
void walk_views(std::uint32_t seed, bool with_faults, WalkFigures& figures);
void walk_splits(std::uint32_t seed, bool with_faults, WalkFigures& figures);

}  // namespace slipstream
