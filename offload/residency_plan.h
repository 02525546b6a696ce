// Decides what stays on a device and what streams, and predicts what a pass then takes. Pure: numbers in, numbers out.
//
// A resident byte saves one streamed byte a pass, whichever item it belongs to; so what counts is that the budget is
// used up, and that resident items are spread evenly through the schedule: in one run they would let the link idle
// while they are computed, and the compute wait after (README.md). What a pass takes is predicted by playing it
// through (pass_simulation.cpp), and where there is a choice (weights or KV, a larger or a smaller ring) the shorter
// pass wins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace slipstream {

enum class PlanTag : std::uint8_t { Weights, Kv };

/// An item of the transfer schedule, in reading order, as large as it will be when the context is full.
struct PlanItem {
    PlanTag tag = PlanTag::Weights;
    std::size_t bytes = 0;           // 0: nothing there yet
    std::size_t unit_bytes = 0;      // resident in multiples of this, from its beginning: `bytes` (all or nothing) for
                                     // weights, a chunk for KV; the last unit of an item may be shorter
    std::size_t transfer_bytes = 0;  // most bytes of one copy: copies end at multiples of this, and are cut at units
                                     // where the ring would not hold four of that size
    std::size_t read_bytes = 0;      // what a pass reads, at its end (a sliding window); 0: all of it
    double compute_seconds = 0.0;    // of a pass, with the item on the device
    double host_bytes = 0.0;  // of host memory that computing it reads besides (a CPU device reads the item itself)
};

struct ResidencyRequest {
    std::vector<PlanItem> schedule;
    std::size_t budget_bytes = 0;         // of the device; the largest size_t: no limit, everything is resident
    std::size_t fixed_bytes = 0;          // of it taken whatever streams: activations, scratch, workspace, draft models
    std::size_t streaming_bytes = 0;      // of it taken as soon as an item streams at all, the ring not counted
    std::size_t kv_streaming_bytes = 0;   // of it taken as soon as KV streams: tails
    std::size_t ring_bytes = 0;           // 0: planned
    std::size_t least_ring_bytes = 0;     // what must fit into the ring at once (two items; a layer, for prompts)
    std::size_t least_kv_ring_bytes = 0;  // and besides, where KV streams beside weights
    double link_bytes_per_second = 0.0;
    double memory_bytes_per_second = 0.0;     // of the host: copies and computing share it; 0: no limit
    double host_bytes_per_copied_byte = 1.0;  // a CPU device's ring lies in host memory, too: read there, written here
    bool weights_stay = false;                // KV alone may stream
    double fixed_seconds = 0.0;               // of a pass outside the schedule: sampling, drafting that nothing hides
};

enum class Regime : std::uint8_t { AllFits, KvStreams, WeightsStream, BothStream };
/// "all fits", "KV streams", "weights stream", "weights and KV stream".
[[nodiscard]] std::string_view regime_name(Regime regime);

struct ResidencyPlan {
    Regime regime = Regime::AllFits;
    std::vector<std::size_t> resident_bytes;  // of each item of the schedule: a multiple of its unit, or all
    std::size_t ring_bytes = 0;               // 0 where nothing streams
    std::size_t device_bytes = 0;             // in all
    std::size_t resident_weights_bytes = 0;   // of them
    std::size_t resident_kv_bytes = 0;        // of them, at full context
    std::size_t streamed_weights_bytes = 0;   // a pass
    std::size_t streamed_kv_bytes = 0;        // a pass, at full context
    double pass_seconds = 0.0;                // steady state, by simulate_passes()
    double link_busy_fraction = 0.0;
};

/// Throws OutOfBudget where the budget does not even hold what must be there, or a given ring does not: names it, the
/// sum, and the remedy. A few milliseconds for tens of thousands of items.
[[nodiscard]] ResidencyPlan plan_residency(const ResidencyRequest& request);

/// The smallest budget that plan_residency() takes.
[[nodiscard]] std::size_t least_budget_bytes(const ResidencyRequest& request);

/// Discrete-event model of passes in steady state: one link that copies in schedule order as far as the ring has room,
/// one device that computes in schedule order what has arrived, both sharing host memory. Seconds of a pass and how
/// much of it the link is busy, for a schedule of which `resident_bytes` (as in ResidencyPlan; more than an item has
/// counts as all of it) stay. So a plan can be judged for other passes than it was made for: of more tokens, over less
/// KV.
struct SimulatedPass {
    double seconds = 0.0;
    double link_busy_fraction = 0.0;
};
[[nodiscard]] SimulatedPass simulate_passes(const ResidencyRequest& request,
                                            const std::vector<std::size_t>& resident_bytes, std::size_t ring_bytes);

/// One of several devices that compute a pass in turns, each its own items: as the arguments above.
struct SimulatedDevice {
    const ResidencyRequest* request = nullptr;
    const std::vector<std::size_t>* resident_bytes = nullptr;
    std::size_t ring_bytes = 0;
};
/// The same of several devices with a link and a ring each: item by item `order` says whose next item is computed.
/// While one computes the rings of the others fill. Host memory is one, the largest that a request says; what a pass
/// takes outside its schedule is the largest. The link fraction is that of the busiest link.
[[nodiscard]] SimulatedPass simulate_passes(std::span<const SimulatedDevice> devices,
                                            std::span<const std::int32_t> order);

}  // namespace slipstream
