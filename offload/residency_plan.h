// Decides what stays on a device and what streams, and predicts the time of a pass. Pure functions: numbers in, numbers
// out.
//
// A resident byte saves one streamed byte per pass, whichever item it belongs to; of an item that is copied on demand,
// only in the passes that read it. A slot, which holds the items that were read most often recently, saves what
// the caller expects of it. So the plan has to use up the budget, for items on demand last, and to spread
// resident items evenly over the schedule: in one run, they would leave the link idle while they are computed, and
// compute would wait for the link afterwards (README.md). The time of a pass is predicted by a simulation
// (pass_simulation.cpp). Where there is a choice (weights or KV, a larger or a smaller ring), the shorter pass wins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace slipstream {

/// What an item is. Weights that are OnDemand are not copied ahead: a pass decides whether it reads them when it
/// reaches them.
enum class PlanTag : std::uint8_t { Weights, Kv, OnDemand };

/// An item of the transfer schedule. To plan, its sizes are those at full context; to simulate other passes, the
/// current ones.
struct PlanItem {
    PlanTag tag = PlanTag::Weights;
    std::size_t bytes = 0;       // size of the item; 0: KV that does not exist yet
    double read_share = 1.0;     // OnDemand: expected share of passes that read the item; `compute_seconds` and
                                 // `host_bytes` are means over all passes
    double slot_saves = 1.0;     // OnDemand, of the j-th item of a run of consecutive ones: expected copies per pass
                                 // that the run's j-th slot saves. The sum over a run: the copies without slots
    std::size_t unit_bytes = 0;  // the first n units of an item are resident. Of weights: `bytes` (all or nothing);
                                 // of KV: a KV chunk. The last unit of an item may be shorter
    std::size_t transfer_bytes = 0;  // most bytes of one copy: copies end at multiples of this, and also between units
                                     // if the ring would not hold four copies of that size
    std::size_t read_bytes = 0;      // bytes that a pass reads, at the end of the item (sliding window); 0: all
    double compute_seconds = 0.0;    // time to compute the item in a pass, if it is on the device
    double host_bytes = 0.0;  // read from host memory by computing, beside copies (on a CPU device: the item itself)
};

struct ResidencyRequest {
    std::vector<PlanItem> schedule;       // items in reading order
    std::size_t budget_bytes = 0;         // budget of the device; largest size_t: no limit, everything is resident
    std::size_t fixed_bytes = 0;          // part of the budget needed in any case: activations, scratch, workspace,
                                          // draft models
    std::size_t streaming_bytes = 0;      // part of the budget needed if any item streams, without the ring
    std::size_t kv_streaming_bytes = 0;   // part of the budget needed if KV streams: device tails
    std::size_t ring_bytes = 0;           // size of the ring; 0: the plan chooses it
    std::size_t least_ring_bytes = 0;     // what must fit into the ring at once (a layer, for prompts); two items of
                                          // each kind must in any case
    std::size_t least_kv_ring_bytes = 0;  // what must fit in addition, if KV and weights or items on demand stream
    double link_bytes_per_second = 0.0;
    double memory_bytes_per_second = 0.0;     // rate of host memory, shared by copies and computing; 0: no limit
    double host_bytes_per_copied_byte = 1.0;  // that computing cannot use; on a CPU device measured
    bool weights_stay = false;                // true: all weights must be resident, and only KV may stream
    /// true: where items on demand stream, device memory for them is slots, which may hold any item of a run of
    /// consecutive ones. All of them then have a copy in host memory.
    bool has_slots = false;
    /// false: items on demand that are not resident are never copied, but computed in host memory.
    bool copies_on_demand = true;
    double fixed_seconds = 0.0;  // time of a pass outside the schedule: sampling, drafting without overlap
};

/// Returns how many copies of the item a pass is expected to make if the item is not resident (not among those that
/// have a slot): 1, or of an item on demand what `request` says.
[[nodiscard]] double expected_copies(const ResidencyRequest& request, const PlanItem& item);

/// Bytes that a pass is expected to copy.
struct CopiedBytes {
    double weights = 0.0;  // without items on demand
    double on_demand = 0.0;
    double kv = 0.0;
    [[nodiscard]] double all() const { return weights + on_demand + kv; }
};
/// Returns what a pass is expected to copy with this residency; `resident_bytes` is as in simulate_passes().
[[nodiscard]] CopiedBytes copied_bytes(const ResidencyRequest& request, const std::vector<std::size_t>& resident_bytes);

/// InHostMemory: nothing streams, but items on demand are computed in host memory.
enum class Regime : std::uint8_t { AllFits, KvStreams, WeightsStream, BothStream, InHostMemory };
/// What is not on the device.
struct OffDevice {
    bool weights_stream = false;
    bool kv_streams = false;
    bool in_host_memory = false;  // items on demand that are not copied
};
[[nodiscard]] Regime regime_of(const OffDevice& off);
/// Returns "all fits", "KV streams", "weights stream", "weights and KV stream" or "weights in host memory".
[[nodiscard]] std::string_view regime_name(Regime regime);

struct ResidencyPlan {
    Regime regime = Regime::AllFits;
    /// Bytes of each item, from its beginning: a multiple of its unit, or all. Of a run with slots, as many items as
    /// have one count as resident; which ones have, changes.
    std::vector<std::size_t> resident_bytes;
    std::vector<std::int32_t> slots;         // slots of each run of consecutive items on demand; empty: there are none
    std::size_t slot_bytes = 0;              // of all slots; part of device_bytes
    std::size_t ring_bytes = 0;              // size of the ring; 0 if nothing streams
    std::size_t in_place_bytes = 0;          // of items on demand that are computed in host memory and never copied
    std::size_t device_bytes = 0;            // needed on the device in total; at most the budget
    std::size_t resident_weights_bytes = 0;  // part of device_bytes, without slots
    std::size_t resident_kv_bytes = 0;       // part of device_bytes, at full context
    std::size_t streamed_weights_bytes = 0;  // copied per pass; of items on demand the expected bytes
    std::size_t most_streamed_weights_bytes = 0;  // copied by a pass that reads every item
    std::size_t streamed_kv_bytes = 0;            // copied per pass, at full context
    double pass_seconds = 0.0;                    // a pass in steady state, by simulate_passes()
    double link_busy_fraction = 0.0;              // part of pass_seconds in which the link copies, 0 to 1
};

/// Returns the plan with the shortest pass, as residency_plan.cpp judges it. Throws OutOfBudget if the budget is less
/// than least_budget_bytes(), or a given ring does not hold what must be in it at once; the message names these needs
/// and the remedy. Takes a few milliseconds for tens of thousands of items.
[[nodiscard]] ResidencyPlan plan_residency(const ResidencyRequest& request);

/// Returns the smallest budget, in bytes, for which plan_residency() finds a plan.
[[nodiscard]] std::size_t least_budget_bytes(const ResidencyRequest& request);

struct SimulatedPass {
    double seconds = 0.0;
    double link_busy_fraction = 0.0;  // part of `seconds` in which the link copies
};
/// Predicts passes in steady state by discrete events: one link copies in the order of the schedule as far as the ring
/// has room, one device computes in the same order what has arrived, and both share host memory. For
/// consecutive items on demand the expected bytes are copied, beginning when the device reaches the first of them.
/// `resident_bytes` is as in ResidencyPlan; more than an item has counts as all of it. The request can differ from the
/// one that the plan was made for, so a plan can be judged for passes of more tokens or over less KV.
[[nodiscard]] SimulatedPass simulate_passes(const ResidencyRequest& request,
                                            const std::vector<std::size_t>& resident_bytes, std::size_t ring_bytes);

/// One of several devices that compute a pass in turns, each its own items: the parameters of simulate_passes() for
/// that device, which the caller keeps alive.
struct SimulatedDevice {
    const ResidencyRequest* request = nullptr;
    const std::vector<std::size_t>* resident_bytes = nullptr;
    std::size_t ring_bytes = 0;
};
/// Predicts passes of several devices, each with its own link and ring. `order` [items of all devices]: the index of
/// the device whose next item is computed. While one device computes, the rings of the others fill. All share one host
/// memory, with the largest bandwidth that a request states. The time outside the schedule is the largest of all
/// requests. The link fraction is that of the busiest link.
[[nodiscard]] SimulatedPass simulate_passes(std::span<const SimulatedDevice> devices,
                                            std::span<const std::int32_t> order);

}  // namespace slipstream
