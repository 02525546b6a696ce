// How a plan is found. Some streaming modes are tried: only KV streams, only weights stream, both stream, and if there
// are items on demand, they alone, or they and KV; each with the preferred ring and, if that would take much of the
// budget, with smaller rings. The rest of the budget goes to resident units, of items on demand last, since their bytes
// save the least. Units are spread by error diffusion: walking through the schedule, an item gets as many as bring the
// sum nearest to its fraction of the bytes seen so far. Each plan is simulated with a full and a half full context,
// since KV that does not exist yet costs nothing and saves nothing. The shortest mean wins; if two are nearly equal,
// the earlier one.
#include "offload/residency_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "kernels/base/size_text.h"
#include "offload/ring_parts.h"

namespace slipstream {

namespace {

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kSlotAlignBytes = 64;  // alignment of slots, as in TransferRing
constexpr std::size_t kRingItems = 4;        // slots of the largest size in the preferred ring
// If the ring takes at most 1/8 of the free bytes and of the bytes that stream, no smaller ring is tried.
constexpr std::size_t kModestRingShare = 8;
// A plan with a smaller ring wins only if its time is below this fraction of the best time so far.
constexpr double kBetterRing = 0.995;
// The plan of a later streaming mode wins only if its time is below this fraction of the best time so far.
constexpr double kBetterSpending = 0.97;

/// What may stream; all else stays on the device.
struct StreamingMode {
    bool weights_stream = false;
    bool kv_streams = false;
    bool on_demand = false;
};
constexpr std::array kStreamingModes{StreamingMode{.kv_streams = true}, StreamingMode{.on_demand = true},
                                     StreamingMode{.kv_streams = true, .on_demand = true},
                                     StreamingMode{.weights_stream = true, .on_demand = true},
                                     StreamingMode{.weights_stream = true, .kv_streams = true, .on_demand = true}};

bool streams(const StreamingMode& mode, PlanTag tag) {
    return tag == PlanTag::Weights ? mode.weights_stream : tag == PlanTag::Kv ? mode.kv_streams : mode.on_demand;
}

// Whether the mode is one for this request: not if weights must stay, or if it differs from another one only by items
// on demand, of which there are none.
bool is_allowed(const ResidencyRequest& request, const StreamingMode& mode) {
    if (request.weights_stay) return !mode.weights_stream && !mode.on_demand;
    if (mode.weights_stream || !mode.on_demand) return true;
    return std::ranges::any_of(request.schedule, [](const PlanItem& item) { return item.tag == PlanTag::OnDemand; });
}

std::size_t sum(std::size_t a, std::size_t b) {
    const std::optional<std::size_t> total = checked_add(a, b);
    CHECK(total && *total < kNoLimit, "{} and {} bytes", a, b);
    return *total;
}

// smallest_slot() returns the ring bytes of the smallest copy that an item can be cut into; largest_slot() those of the
// largest.
std::size_t smallest_slot(const PlanItem& item) {
    return round_up(std::min(item.bytes, item.unit_bytes), kSlotAlignBytes);
}
std::size_t largest_slot(const PlanItem& item) {
    return round_up(std::min(item.bytes, std::max(item.transfer_bytes, item.unit_bytes)), kSlotAlignBytes);
}

std::size_t& slot_of(RingSlots& slots, const PlanItem& item) {
    return item.tag == PlanTag::OnDemand ? slots.on_demand : slots.scheduled;
}

/// Device memory that a mode needs before any unit is resident by choice.
struct Needs {
    std::size_t base_bytes = 0;  // fixed bytes, bytes for streaming, and items that must be resident; without the ring
    std::size_t least_ring_bytes = 0;
    RingSlots largest_slots;       // of the largest copies; none: nothing is copied in this mode
    std::size_t choice_bytes = 0;  // bytes of items that may stream
};

Needs needs_of(const ResidencyRequest& request, const StreamingMode& mode) {
    Needs needs{.base_bytes = sum(request.fixed_bytes, request.streaming_bytes)};
    if (mode.kv_streams) needs.base_bytes = sum(needs.base_bytes, request.kv_streaming_bytes);
    RingSlots smallest;
    for (const PlanItem& item : request.schedule) {
        if (item.tag == PlanTag::OnDemand && mode.on_demand && !request.copies_on_demand) {
            needs.choice_bytes = sum(needs.choice_bytes, item.bytes);
        } else if (streams(mode, item.tag)) {
            std::size_t& least = slot_of(smallest, item);
            least = std::max(least, smallest_slot(item));
            std::size_t& largest = slot_of(needs.largest_slots, item);
            largest = std::max(largest, largest_slot(item));
            needs.choice_bytes = sum(needs.choice_bytes, item.bytes);
        } else {
            needs.base_bytes = sum(needs.base_bytes, item.bytes);
        }
    }
    if (smallest.least_ring_bytes() == 0) return needs;
    const bool both = mode.kv_streams && (mode.weights_stream || (mode.on_demand && request.copies_on_demand));
    needs.least_ring_bytes =
        std::max(sum(request.least_ring_bytes, both ? request.least_kv_ring_bytes : 0), smallest.least_ring_bytes());
    return needs;
}

std::size_t bytes_of(const ResidencyRequest& request, std::optional<PlanTag> tag) {
    std::size_t bytes = 0;
    for (const PlanItem& item : request.schedule)
        if (!tag || item.tag == *tag) bytes = sum(bytes, item.bytes);
    return bytes;
}

/// What is on the device of each item of a schedule.
struct Residence {
    std::vector<std::size_t> bytes;   // as ResidencyPlan::resident_bytes
    std::vector<std::int32_t> slots;  // as ResidencyPlan::slots
    std::size_t slot_bytes = 0;
};

/// Chooses the resident units of each item of a schedule.
class Residents {
public:
    explicit Residents(const std::vector<PlanItem>& schedule) : schedule_(schedule), bytes_(schedule.size(), 0) {}

    void take_all(PlanTag tag) {
        for (std::size_t i = 0; i < schedule_.size(); ++i)
            if (schedule_[i].tag == tag) bytes_[i] = schedule_[i].bytes;
    }

    /// Makes units of items of `tag` resident, spread evenly, at most `room` bytes in total. Returns the bytes left.
    std::size_t spread(PlanTag tag, std::size_t room) {
        std::size_t total = 0;
        for (const PlanItem& item : schedule_)
            if (serves(item, tag)) total += item.bytes;
        if (total == 0) return room;
        const double share = std::min(1.0, static_cast<double>(room) / static_cast<double>(total));
        double due = 0.0;  // bytes that the items so far should have by `share`, minus those that they got
        for (std::size_t i = 0; i < schedule_.size(); ++i) {
            const PlanItem& item = schedule_[i];
            if (!serves(item, tag)) continue;
            due += share * static_cast<double>(item.bytes);
            const std::size_t nearest = std::min(units_near(item, due), item.bytes);
            bytes_[i] = nearest <= room ? nearest : std::min(room / item.unit_bytes * item.unit_bytes, item.bytes);
            due -= static_cast<double>(bytes_[i]);
            room -= bytes_[i];
        }
        return use_up(tag, room);
    }

    /// Gives runs of items on demand slots, in `room` bytes: all runs equally many, and then the first ones another, as
    /// far as there is room. If all items fit, they are resident instead.
    void give_slots(std::size_t room) {
        struct Run {
            std::size_t first = 0;
            std::int32_t n_items = 0;
            std::size_t slot_bytes = 0;  // of the largest item
        };
        std::vector<Run> runs;
        std::size_t total = 0;
        bool goes_on = false;
        for (std::size_t i = 0; i < schedule_.size(); ++i) {
            const bool is_on_demand = schedule_[i].tag == PlanTag::OnDemand;
            if (is_on_demand && !goes_on) runs.push_back({.first = i});
            goes_on = is_on_demand;
            if (!is_on_demand) continue;
            Run& run = runs.back();
            ++run.n_items;
            run.slot_bytes = std::max(run.slot_bytes, round_up(schedule_[i].bytes, kSlotAlignBytes));
            total += schedule_[i].bytes;
        }
        if (total <= room) return take_all(PlanTag::OnDemand);
        slots_.assign(runs.size(), 0);
        for (std::int32_t slot = 0;; ++slot) {
            std::size_t of_all = 0;
            for (const Run& run : runs) of_all += run.n_items > slot ? run.slot_bytes : 0;
            if (of_all == 0) break;
            const bool is_last = of_all > room;
            for (std::size_t i = 0; i < runs.size(); ++i) {
                const Run& run = runs[i];
                if (run.n_items <= slot || run.slot_bytes > room) continue;
                const std::size_t item = run.first + static_cast<std::size_t>(slot);
                bytes_[item] = schedule_[item].bytes;
                slots_[i] = slot + 1;
                slot_bytes_ += run.slot_bytes;
                room -= run.slot_bytes;
            }
            if (is_last) break;
        }
        if (slot_bytes_ == 0) slots_.clear();
    }

    [[nodiscard]] Residence residence() && { return {std::move(bytes_), std::move(slots_), slot_bytes_}; }

private:
    // Whether units of the item can be made resident. Not if a pass reads only its end: a resident beginning saves
    // nothing.
    static bool serves(const PlanItem& item, PlanTag tag) {
        return item.tag == tag && item.bytes > 0 && (item.read_bytes == 0 || item.read_bytes >= item.bytes);
    }
    static std::size_t units_near(const PlanItem& item, double bytes) {
        const double units = std::floor(bytes / static_cast<double>(item.unit_bytes) + 0.5);
        return units <= 0.0 ? 0 : static_cast<std::size_t>(units) * item.unit_bytes;
    }

    // Adds single units while one fits into `room`, the largest first. Returns the bytes left.
    std::size_t use_up(PlanTag tag, std::size_t room) {
        while (true) {
            std::size_t best = schedule_.size();
            std::size_t best_bytes = 0;
            for (std::size_t i = 0; i < schedule_.size(); ++i) {
                const PlanItem& item = schedule_[i];
                if (!serves(item, tag)) continue;
                const std::size_t next = std::min(item.unit_bytes, item.bytes - bytes_[i]);
                if (next <= best_bytes || next > room) continue;
                best = i;
                best_bytes = next;
            }
            if (best == schedule_.size()) return room;
            bytes_[best] += best_bytes;
            room -= best_bytes;
        }
    }

    const std::vector<PlanItem>& schedule_;
    std::vector<std::size_t> bytes_;
    std::vector<std::int32_t> slots_;
    std::size_t slot_bytes_ = 0;
};

std::size_t read_of(const PlanItem& item) {
    return item.read_bytes == 0 ? item.bytes : std::min(item.read_bytes, item.bytes);
}

// Returns the bytes that a pass copies if it reads the item.
std::size_t streamed_of(const PlanItem& item, std::size_t resident_bytes) {
    return std::min(item.bytes - std::min(resident_bytes, item.bytes), read_of(item));
}

/// Returns the plan that this residence and this ring make, with its simulated times.
ResidencyPlan evaluated(const ResidencyRequest& request, Residence residence, std::size_t ring_bytes) {
    ResidencyPlan plan{.slots = std::move(residence.slots), .slot_bytes = residence.slot_bytes};
    std::vector<std::size_t>& resident_bytes = residence.bytes;
    for (std::size_t i = 0; i < request.schedule.size(); ++i) {
        const PlanItem& item = request.schedule[i];
        const std::size_t streamed = streamed_of(item, resident_bytes[i]);
        if (item.tag == PlanTag::OnDemand && plan.slot_bytes > 0) {  // slots may be empty, or hold other items
            plan.most_streamed_weights_bytes += item.bytes;
            continue;
        }
        if (item.tag == PlanTag::OnDemand && !request.copies_on_demand) {
            plan.resident_weights_bytes += resident_bytes[i];
            plan.in_place_bytes += streamed;
            continue;
        }
        (item.tag == PlanTag::Kv ? plan.resident_kv_bytes : plan.resident_weights_bytes) += resident_bytes[i];
        (item.tag == PlanTag::Kv ? plan.streamed_kv_bytes : plan.most_streamed_weights_bytes) += streamed;
    }
    const CopiedBytes copied = copied_bytes(request, resident_bytes);
    plan.streamed_weights_bytes = static_cast<std::size_t>(std::llround(copied.weights + copied.on_demand));
    const bool weights = plan.most_streamed_weights_bytes > 0;
    const bool kv = plan.streamed_kv_bytes > 0;
    plan.regime = regime_of({weights, kv, plan.in_place_bytes > 0});
    const bool all_fits = plan.regime == Regime::AllFits;
    plan.ring_bytes = weights || kv ? ring_bytes : 0;
    plan.device_bytes = request.fixed_bytes + plan.resident_weights_bytes + plan.slot_bytes + plan.resident_kv_bytes +
                        plan.ring_bytes + (all_fits ? 0 : request.streaming_bytes) +
                        (kv ? request.kv_streaming_bytes : 0);
    CHECK(plan.device_bytes <= request.budget_bytes, "a plan of {} bytes for {}", plan.device_bytes,
          request.budget_bytes);
    const SimulatedPass pass = simulate_passes(request, resident_bytes, plan.ring_bytes);
    plan.pass_seconds = pass.seconds;
    plan.link_busy_fraction = pass.link_busy_fraction;
    plan.resident_bytes = std::move(resident_bytes);
    return plan;
}

/// Returns the ring sizes to try, in bytes, the preferred one first. `room` is the bytes that ring and resident units
/// together may take, at least least_ring_bytes. The preferred ring also holds what the link can copy ahead during
/// fixed_seconds.
std::vector<std::size_t> ring_sizes(const ResidencyRequest& request, const Needs& needs, std::size_t room) {
    if (needs.largest_slots.least_ring_bytes() == 0) return {0};
    if (request.ring_bytes > 0) return {request.ring_bytes};
    const double behind =
        needs.largest_slots.scheduled > 0 ? request.link_bytes_per_second * request.fixed_seconds : 0.0;
    const std::size_t hidden = behind < static_cast<double>(room) ? static_cast<std::size_t>(behind) : room;
    const std::size_t several =
        std::max(needs.least_ring_bytes, kRingItems * (needs.largest_slots.scheduled + needs.largest_slots.on_demand));
    std::vector<std::size_t> sizes{std::min(std::max(several, round_up(hidden, kSlotAlignBytes)), room)};
    // A ring takes memory from resident units: if little more than the ring streams, a smaller ring may be better. Of
    // items on demand a pass may read so few that any ring is large beside them.
    const std::size_t streamed = needs.choice_bytes - std::min(needs.choice_bytes, room);
    if (needs.largest_slots.on_demand == 0 && sizes.back() <= room / kModestRingShare &&
        sizes.back() <= streamed / kModestRingShare)
        return sizes;
    if (several < sizes.back()) sizes.push_back(several);
    while (sizes.back() > needs.least_ring_bytes)
        sizes.push_back(std::max(needs.least_ring_bytes, round_up(sizes.back() / 2, kSlotAlignBytes)));
    return sizes;
}

/// Returns the request for a context that is half full: KV items have half their bytes, rounded up to whole units,
/// and their times shrink with them.
ResidencyRequest half_full(const ResidencyRequest& request) {
    ResidencyRequest half = request;
    for (PlanItem& item : half.schedule) {
        if (item.tag != PlanTag::Kv || item.bytes == 0) continue;
        const std::size_t bytes = std::min(item.bytes, round_up(ceil_div(item.bytes, std::size_t{2}), item.unit_bytes));
        const double share = static_cast<double>(std::min(bytes, read_of(item))) / static_cast<double>(read_of(item));
        item.bytes = bytes;
        item.compute_seconds *= share;
        item.host_bytes *= share;
    }
    return half;
}

/// A plan and the time by which it is judged.
struct Candidate {
    ResidencyPlan plan;
    double seconds = 0.0;  // mean of a pass with full and with half full context
};

/// Returns the best plan of one mode; nullopt if the mode is not allowed, streams nothing, or exceeds the budget.
/// `half` is half_full(request).
std::optional<Candidate> best_of(const ResidencyRequest& request, const ResidencyRequest& half,
                                 const StreamingMode& mode) {
    if (!is_allowed(request, mode)) return std::nullopt;
    const Needs needs = needs_of(request, mode);
    if (needs.choice_bytes == 0 || needs.base_bytes >= request.budget_bytes) return std::nullopt;
    const std::size_t room = request.budget_bytes - needs.base_bytes;
    if (needs.least_ring_bytes > room) return std::nullopt;
    std::optional<Candidate> best;
    for (const std::size_t ring_bytes : ring_sizes(request, needs, room)) {
        if (ring_bytes > room || ring_bytes < needs.least_ring_bytes) continue;
        Residents residents(request.schedule);
        std::size_t left = room - ring_bytes;
        // If several kinds stream, weights become resident first: each pass reads all of them, KV only up to the length
        // of the sequence, and items on demand only if they are chosen.
        for (const PlanTag tag : {PlanTag::Weights, PlanTag::Kv, PlanTag::OnDemand}) {
            if (!streams(mode, tag))
                residents.take_all(tag);
            else if (tag == PlanTag::OnDemand && request.has_slots)
                residents.give_slots(left);
            else
                left = residents.spread(tag, left);
        }
        Candidate candidate{.plan = evaluated(request, std::move(residents).residence(), ring_bytes)};
        const SimulatedPass early = simulate_passes(half, candidate.plan.resident_bytes, candidate.plan.ring_bytes);
        candidate.seconds = 0.5 * (candidate.plan.pass_seconds + early.seconds);
        if (!best || candidate.seconds < kBetterRing * best->seconds) best = std::move(candidate);
    }
    return best;
}

std::size_t ring_needed(const ResidencyRequest& request, const Needs& needs) {
    if (needs.largest_slots.least_ring_bytes() == 0) return 0;
    return request.ring_bytes > 0 ? request.ring_bytes : needs.least_ring_bytes;
}

[[noreturn]] void refuse(const ResidencyRequest& request) {
    StreamingMode last = kStreamingModes.back();
    if (request.weights_stay) last = {.kv_streams = true};
    const Needs needs = needs_of(request, last);
    if (request.ring_bytes > 0 && request.ring_bytes < needs.least_ring_bytes)
        throw OutOfBudget(
            fmt::format("a ring of {} is too small: it must hold {} at once; use --ring {} or more, or omit --ring",
                        size_text(request.ring_bytes), size_text(needs.least_ring_bytes),
                        size_option_text(needs.least_ring_bytes)));
    const std::size_t least = least_budget_bytes(request);
    throw OutOfBudget(fmt::format(
        "a device budget of {} is too small: {} are needed in any case, {} for streaming and {} for the ring{}; use "
        "--device-memory {} or more, {}a shorter --ctx, or a smaller model",
        size_text(request.budget_bytes), size_text(request.fixed_bytes),
        size_text(needs.base_bytes - request.fixed_bytes), size_text(ring_needed(request, needs)),
        request.weights_stay ? ", including all weights" : "", size_option_text(least),
        request.ring_bytes > needs.least_ring_bytes ? "a smaller --ring, " : ""));
}

void check_request(const ResidencyRequest& request) {
    for (const PlanItem& item : request.schedule)
        CHECK((item.bytes == 0 || (item.unit_bytes > 0 && item.transfer_bytes > 0)) && item.read_share > 0.0 &&
                  item.read_share <= 1.0 && item.slot_saves >= 0.0 &&
                  (item.tag == PlanTag::OnDemand || (item.read_share == 1.0 && item.slot_saves == 1.0)),
              "an item of {} bytes in units of {} and copies of {}, read by {} of all passes, {} copies fewer",
              item.bytes, item.unit_bytes, item.transfer_bytes, item.read_share, item.slot_saves);
}

}  // namespace

Regime regime_of(const OffDevice& off) {
    if (off.weights_stream) return off.kv_streams ? Regime::BothStream : Regime::WeightsStream;
    if (off.kv_streams) return Regime::KvStreams;
    return off.in_host_memory ? Regime::InHostMemory : Regime::AllFits;
}

std::string_view regime_name(Regime regime) {
    static constexpr std::array<std::string_view, 5> kNames{"all fits", "KV streams", "weights stream",
                                                            "weights and KV stream", "weights in host memory"};
    return kNames[static_cast<std::size_t>(regime)];
}

double expected_copies(const ResidencyRequest& request, const PlanItem& item) {
    if (item.tag != PlanTag::OnDemand) return 1.0;
    if (!request.copies_on_demand) return 0.0;
    return request.has_slots ? item.slot_saves : item.read_share;
}

CopiedBytes copied_bytes(const ResidencyRequest& request, const std::vector<std::size_t>& resident_bytes) {
    CopiedBytes copied;
    for (std::size_t i = 0; i < request.schedule.size(); ++i) {
        const PlanItem& item = request.schedule[i];
        double& bytes = item.tag == PlanTag::Kv         ? copied.kv
                        : item.tag == PlanTag::OnDemand ? copied.on_demand
                                                        : copied.weights;
        bytes += expected_copies(request, item) * static_cast<double>(streamed_of(item, resident_bytes.at(i)));
    }
    return copied;
}

std::size_t least_budget_bytes(const ResidencyRequest& request) {
    check_request(request);
    std::size_t least = sum(request.fixed_bytes, bytes_of(request, std::nullopt));
    for (const StreamingMode& mode : kStreamingModes) {
        if (!is_allowed(request, mode)) continue;
        const Needs needs = needs_of(request, mode);
        if (needs.choice_bytes == 0) continue;  // nothing leaves the device in this mode
        if (request.ring_bytes > 0 && request.ring_bytes < needs.least_ring_bytes) continue;
        least = std::min(least, sum(needs.base_bytes, ring_needed(request, needs)));
    }
    return least;
}

ResidencyPlan plan_residency(const ResidencyRequest& request) {
    check_request(request);
    if (sum(request.fixed_bytes, bytes_of(request, std::nullopt)) <= request.budget_bytes) {
        Residents residents(request.schedule);
        for (const PlanTag tag : {PlanTag::Weights, PlanTag::Kv, PlanTag::OnDemand}) residents.take_all(tag);
        return evaluated(request, std::move(residents).residence(), 0);
    }
    CHECK(request.link_bytes_per_second > 0.0, "streaming over a link of {} bytes a second",
          request.link_bytes_per_second);
    const ResidencyRequest half = half_full(request);
    std::optional<Candidate> best;
    for (const StreamingMode& mode : kStreamingModes) {
        std::optional<Candidate> candidate = best_of(request, half, mode);
        if (candidate && (!best || candidate->seconds < kBetterSpending * best->seconds)) best = std::move(candidate);
    }
    if (!best) refuse(request);
    return std::move(best->plan);
}

}  // namespace slipstream
