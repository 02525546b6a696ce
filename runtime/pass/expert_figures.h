// What passes needed of the experts of a layer, and what had to be copied for them.
#pragma once

#include <cstdint>

#include "runtime/experts/distinct_experts.h"

namespace slipstream {

/// Sums over passes (Phase::Decode) and their chosen experts: an expert counts once for a pass, however many tokens of
/// the pass chose it.
struct ExpertFigures {
    std::uint64_t needed = 0;
    std::uint64_t hits = 0;          // of those: on the device as a whole
    std::uint64_t cpu = 0;           // of those: computed by the CPU from host memory, beside a device that lacked them
    std::uint64_t copied_bytes = 0;  // of items that were copied for them; for the tokens after the prefill chunks
                                     // of a prompt by layers they came with those chunks
    std::uint64_t evicted = 0;       // experts that have lost their slots to others
    double wait_seconds = 0.0;       // waits for them of the thread that enqueues the pass
    DistinctExperts distinct{};      // of passes, by their number of tokens

    ExpertFigures& operator+=(const ExpertFigures& other) {
        needed += other.needed;
        hits += other.hits;
        cpu += other.cpu;
        copied_bytes += other.copied_bytes;
        evicted += other.evicted;
        wait_seconds += other.wait_seconds;
        distinct += other.distinct;
        return *this;
    }
    friend ExpertFigures operator-(const ExpertFigures& later, const ExpertFigures& earlier) {
        return {.needed = later.needed - earlier.needed,
                .hits = later.hits - earlier.hits,
                .cpu = later.cpu - earlier.cpu,
                .copied_bytes = later.copied_bytes - earlier.copied_bytes,
                .evicted = later.evicted - earlier.evicted,
                .wait_seconds = later.wait_seconds - earlier.wait_seconds,
                .distinct = later.distinct - earlier.distinct};
    }
};

}  // namespace slipstream
