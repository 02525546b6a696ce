// Simulates passes on a virtual clock: the implementation of simulate_passes() (residency_plan.h).
//
// A schedule becomes steps. The resident part of an item is one step, computed when its turn comes. Each copy of a
// streamed part is one step: it waits for its copy, is computed, and frees its ring slot. The link copies in the order
// of the steps, as far as the ring has room (slots of variable size, first in, first out, as in transfer_ring.h) and at
// most into the next pass, as pass_prefetcher.h does. Between two passes, the link continues while the device does the
// work outside the schedule.
//
// Consecutive items on demand (the experts of a layer) are one run: what is expected to be copied of them begins when
// the run's turn comes, beside the scheduled copies, with which it shares the link evenly. The run is computed
// meanwhile, but for the item that arrives last. If copies and computing together demand more bandwidth than host
// memory has, they share it evenly. Passes are repeated until they take the same time. Several devices take turns with
// the steps; each has its own link and ring.
#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "offload/residency_plan.h"
#include "offload/ring_parts.h"

namespace slipstream {

namespace {

constexpr std::size_t kSlotAlignBytes = 64;  // alignment of slots, as in TransferRing
constexpr std::size_t kCopiesInRing = 4;     // copies are cut so that the ring holds this many, but not below a unit
constexpr std::size_t kMaxPasses = 16;       // passes after which the simulation ends, equal or not
constexpr std::size_t kAveragedPasses = 8;   // last passes whose mean is the result if they do not become equal
constexpr double kSettled = 1e-6;            // largest relative difference of two passes that count as equal

/// A part of an item that is computed at once, or a run of items on demand.
struct Step {
    std::int32_t device = 0;
    double seconds = 0.0;          // time to compute it while nothing else uses host memory
    double host_rate = 0.0;        // bytes per second of host memory that it uses at that speed
    std::size_t copied_bytes = 0;  // 0: resident
    double demand_bytes = 0.0;     // copied from the beginning of the step on; it ends no earlier
};

// Returns the slots of the largest items that a device copies; of KV, that of a unit.
RingSlots slots_of(const SimulatedDevice& device) {
    RingSlots slots;
    const std::vector<PlanItem>& schedule = device.request->schedule;
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        const PlanItem& item = schedule[i];
        if (device.resident_bytes->at(i) >= item.bytes) continue;
        if (item.tag == PlanTag::OnDemand && !device.request->copies_on_demand) continue;
        std::size_t& slot = item.tag == PlanTag::OnDemand ? slots.on_demand : slots.scheduled;
        slot = std::max(slot, round_up(std::min(item.bytes, item.unit_bytes), kSlotAlignBytes));
    }
    return slots;
}

/// Turns the items of one device into steps, one item per call of add_next_item().
class Stepper {
public:
    Stepper(std::int32_t number, const SimulatedDevice& device, std::vector<Step>& steps)
        : number_(number),
          request_(*device.request),
          resident_(*device.resident_bytes),
          ring_(divide_ring(device.ring_bytes, slots_of(device)).scheduled),
          steps_(&steps) {
        CHECK(resident_.size() == request_.schedule.size(), "{} items, {} decisions", request_.schedule.size(),
              resident_.size());
    }

    void add_next_item() {
        CHECK(next_ < request_.schedule.size(), "device {} has no further item", number_);
        add_item(request_.schedule[next_], resident_[next_]);
        ++next_;
    }
    [[nodiscard]] bool is_through() const { return next_ == request_.schedule.size(); }

private:
    /// Consecutive items on demand. Its two steps are the last ones.
    struct Run {
        std::size_t end = 0;  // number of steps after its own; 0: there is no run
        double seconds = 0.0;
        double host_bytes = 0.0;
        double copied_bytes = 0.0;
        double copied_items = 0.0;    // expected
        double copied_seconds = 0.0;  // to compute them
    };

    void add_item(const PlanItem& item, std::size_t resident) {
        if (item.tag == PlanTag::OnDemand) return add_on_demand(item, resident);
        const std::size_t read = item.read_bytes == 0 ? item.bytes : std::min(item.read_bytes, item.bytes);
        if (read == 0) return add_step(item, 1.0, 0);
        const std::size_t begin = item.bytes - read;
        std::size_t at = std::clamp(resident, begin, item.bytes);
        const auto share = [read](std::size_t bytes) { return static_cast<double>(bytes) / static_cast<double>(read); };
        if (at > begin) add_step(item, share(at - begin), 0);
        CHECK(at == item.bytes || (item.transfer_bytes > 0 && item.unit_bytes > 0),
              "an item of {} bytes that cannot be copied", item.bytes);
        const std::size_t copy = at < item.bytes ? copy_bytes(item) : 0;
        while (at < item.bytes) {
            const std::size_t end =
                std::min({item.bytes, (at / item.transfer_bytes + 1) * item.transfer_bytes, at + copy});
            add_step(item, share(end - at), end - at);
            at = end;
        }
    }

    // Returns the most bytes of one copy of the item.
    [[nodiscard]] std::size_t copy_bytes(const PlanItem& item) const {
        return std::max(item.unit_bytes,
                        std::min(item.transfer_bytes, ring_ / kCopiesInRing / item.unit_bytes * item.unit_bytes));
    }

    // The last item that arrives is computed after it: as long as one item takes, or all if fewer than one is expected.
    void add_on_demand(const PlanItem& item, std::size_t resident) {
        if (run_.end == 0 || run_.end != steps_->size()) {
            steps_->push_back({.device = number_});
            steps_->push_back({.device = number_});
            run_ = {.end = steps_->size()};
        }
        run_.seconds += item.compute_seconds;
        run_.host_bytes += item.host_bytes;
        if (resident < item.bytes) {
            const double copies = expected_copies(request_, item);
            run_.copied_bytes += copies * static_cast<double>(item.bytes - resident);
            run_.copied_items += copies;
            run_.copied_seconds += item.compute_seconds * (copies / item.read_share);
        }
        double seconds = run_.seconds;
        if (request_.memory_bytes_per_second > 0.0)
            seconds = std::max(seconds, run_.host_bytes / request_.memory_bytes_per_second);
        const double last = std::min(seconds, run_.copied_seconds / std::max(run_.copied_items, 1.0));
        const double rate = seconds > 0.0 ? run_.host_bytes / seconds : 0.0;
        steps_->at(run_.end - 2) = {
            .device = number_, .seconds = seconds - last, .host_rate = rate, .demand_bytes = run_.copied_bytes};
        steps_->at(run_.end - 1) = {.device = number_, .seconds = last, .host_rate = rate};
    }

    void add_step(const PlanItem& item, double share, std::size_t copied) {
        const double host_bytes = item.host_bytes * share;
        Step step{.device = number_, .seconds = item.compute_seconds * share, .copied_bytes = copied};
        if (request_.memory_bytes_per_second > 0.0)
            step.seconds = std::max(step.seconds, host_bytes / request_.memory_bytes_per_second);
        if (step.seconds > 0.0) step.host_rate = host_bytes / step.seconds;
        steps_->push_back(step);
    }

    std::int32_t number_;
    const ResidencyRequest& request_;
    const std::vector<std::size_t>& resident_;
    std::size_t ring_;
    std::vector<Step>* steps_;
    std::size_t next_ = 0;
    Run run_;
};

/// Free room in a ring whose slots are placed as TransferRing places them.
class RingRoom {
public:
    explicit RingRoom(std::size_t bytes) : bytes_(bytes) {}

    [[nodiscard]] bool has_room(std::size_t slot) const {
        if (begins_.empty()) return slot <= bytes_;
        if (end_ > begins_.front()) return fits_to_end(slot) || slot <= begins_.front();
        return slot <= begins_.front() - end_;
    }
    void push(std::size_t slot) {
        if ((begins_.empty() || end_ > begins_.front()) && !fits_to_end(slot)) end_ = 0;
        begins_.push_back(end_);
        end_ += slot;
    }
    void pop() { begins_.pop_front(); }

private:
    [[nodiscard]] bool fits_to_end(std::size_t slot) const { return slot <= bytes_ && end_ <= bytes_ - slot; }

    std::size_t bytes_;
    std::size_t end_ = 0;             // offset of the end of the latest slot
    std::deque<std::size_t> begins_;  // offsets of the slots in use, oldest first
};

/// Max-min fair share: returns the most that each of `demands` gets of `memory`, all in bytes per second (`memory` 0:
/// no limit). Demands below an even share are met; the others divide the rest evenly. Sorts `demands`.
double fair_limit(std::vector<double>& demands, double memory) {
    if (memory <= 0.0) return std::numeric_limits<double>::infinity();
    std::sort(demands.begin(), demands.end());
    auto n_left = static_cast<double>(demands.size());
    for (const double demand : demands) {
        if (demand * n_left > memory) return memory / n_left;
        memory -= demand;
        n_left -= 1.0;
    }
    return std::numeric_limits<double>::infinity();
}

/// The link of a device with its ring. It copies the streamed steps of the device in order, pass after pass, and what
/// the running step demands. If it does both, each gets half of it.
struct Link {
    [[nodiscard]] double n_flows() const { return (copying ? 1.0 : 0.0) + (demand_left > 0.0 ? 1.0 : 0.0); }
    /// Advances the copies by `elapsed` seconds at `flow_rate` bytes per second each. Bytes that take no longer are
    /// done.
    void advance(double elapsed, double flow_rate) {
        if (n_flows() > 0.0) busy += elapsed;
        if (demand_left > 0.0)
            demand_left = demand_left / flow_rate <= elapsed ? 0.0 : demand_left - elapsed * flow_rate;
        if (!copying) return;
        if (bytes_left / flow_rate <= elapsed) {
            copying = false;
            ++n_arrived;
        } else {
            bytes_left -= elapsed * flow_rate;
        }
    }
    /// Returns the seconds until one of its copies is done, at `flow_rate` bytes per second each.
    [[nodiscard]] double seconds_to_event(double flow_rate) const {
        double seconds = std::numeric_limits<double>::infinity();
        if (copying) seconds = std::min(seconds, bytes_left / flow_rate);
        if (demand_left > 0.0) seconds = std::min(seconds, demand_left / flow_rate);
        return seconds;
    }
    void begin_what_can(std::size_t pass) {
        if (copying || copies.empty() || n_pushed / copies.size() > pass + 1) return;
        const std::size_t bytes = copies[n_pushed % copies.size()];
        const std::size_t slot = round_up(bytes, kSlotAlignBytes);
        if (!ring.has_room(slot)) return;
        ring.push(slot);
        ++n_pushed;
        copying = true;
        bytes_left = static_cast<double>(bytes);
    }
    void release() {
        ring.pop();
        ++n_released;
    }

    double rate = 0.0;       // bytes per second
    double host_rate = 0.0;  // bytes per second of host memory that it uses while it copies
    RingRoom ring;
    std::vector<std::size_t> copies{};  // bytes of each copy of one pass
    double busy = 0.0;                  // seconds in which it copied
    bool copying = false;
    double bytes_left = 0.0;
    double demand_left = 0.0;  // bytes that the running step still waits for
    std::size_t n_pushed = 0;
    std::size_t n_arrived = 0;
    std::size_t n_released = 0;
};

/// Simulates links and devices: moves the time from one event to the next.
class Player {
public:
    Player(std::span<const SimulatedDevice> devices, const std::vector<Step>& steps) : steps_(steps) {
        for (const SimulatedDevice& device : devices) {
            memory_ = std::max(memory_, device.request->memory_bytes_per_second);
            const double rate = device.request->link_bytes_per_second;
            links_.push_back({.rate = rate,
                              .host_rate = rate * device.request->host_bytes_per_copied_byte,
                              .ring = RingRoom(divide_ring(device.ring_bytes, slots_of(device)).scheduled)});
        }
        for (const Step& step : steps) {
            Link& link = link_of(step);
            if (step.copied_bytes > 0) link.copies.push_back(step.copied_bytes);
            CHECK((link.copies.empty() && step.demand_bytes == 0.0) || link.rate > 0.0,
                  "{} copies over a link of {} bytes a second", link.copies.size(), link.rate);
        }
    }

    SimulatedPass play() {
        std::vector<double> ends{0.0};
        std::vector<std::vector<double>> busy{busy_seconds()};
        std::size_t n_equal = 0;
        while (n_equal < 2 && ends.size() <= kMaxPasses) {
            while (pass_ < ends.size()) advance();
            ends.push_back(now_);
            busy.push_back(busy_seconds());
            if (ends.size() < 3) continue;
            const double last = ends.back() - ends[ends.size() - 2];
            const double before = ends[ends.size() - 2] - ends[ends.size() - 3];
            n_equal = std::abs(last - before) <= kSettled * last ? n_equal + 1 : 0;
        }
        const std::size_t n = std::min(n_equal == 2 ? 1 : kAveragedPasses, ends.size() - 1);
        const double seconds = ends.back() - ends[ends.size() - 1 - n];
        double busiest = 0.0;
        for (std::size_t i = 0; i < links_.size(); ++i)
            busiest = std::max(busiest, busy.back()[i] - busy[busy.size() - 1 - n][i]);
        return {.seconds = seconds / static_cast<double>(n),
                .link_busy_fraction = seconds > 0.0 ? std::min(busiest / seconds, 1.0) : 0.0};
    }

private:
    [[nodiscard]] const Step& step() const { return steps_[step_]; }
    [[nodiscard]] Link& link_of(const Step& step) { return links_[step.device]; }
    [[nodiscard]] std::vector<double> busy_seconds() const {
        std::vector<double> seconds;
        for (const Link& link : links_) seconds.push_back(link.busy);
        return seconds;
    }

    void begin_what_can() {
        bool anything = computing_;
        for (Link& link : links_) {
            link.begin_what_can(pass_);
            anything = anything || link.copying;
        }
        if (!computing_ && (step().copied_bytes == 0 || link_of(step()).n_arrived > link_of(step()).n_released)) {
            computing_ = true;
            computed_ = false;
            seconds_left_ = step().seconds;
            link_of(step()).demand_left = step().demand_bytes;
        }
        CHECK(anything || computing_, "a copy of {} bytes does not fit into the ring", step().copied_bytes);
    }

    // Advances the clock to the end of a copy or of the running computation, whichever comes first.
    void advance() {
        begin_what_can();
        const bool computes = computing_ && !computed_;
        demands_.clear();
        for (const Link& link : links_)
            for (double flow = 0.0; flow < link.n_flows(); ++flow) demands_.push_back(link.host_rate / link.n_flows());
        if (computes) demands_.push_back(step().host_rate);
        const double limit = fair_limit(demands_, memory_);
        const auto served = [&](double demand) { return demand > limit ? limit / demand : 1.0; };
        const auto flow_rate = [&](const Link& link) {
            return link.rate / link.n_flows() * served(link.host_rate / link.n_flows());
        };
        const double speed = computes ? served(step().host_rate) : 0.0;
        const double to_compute = computes ? seconds_left_ / speed : std::numeric_limits<double>::infinity();
        double elapsed = to_compute;
        for (const Link& link : links_)
            if (link.n_flows() > 0.0) elapsed = std::min(elapsed, link.seconds_to_event(flow_rate(link)));
        now_ += elapsed;
        for (Link& link : links_)
            if (link.n_flows() > 0.0) link.advance(elapsed, flow_rate(link));
        if (computes) seconds_left_ -= elapsed * speed;
        if (to_compute <= elapsed) computed_ = true;
        if (computing_ && computed_ && link_of(step()).demand_left == 0.0) end_step();
    }

    void end_step() {
        computing_ = false;
        if (step().copied_bytes > 0) link_of(step()).release();
        if (++step_ == steps_.size()) {
            step_ = 0;
            ++pass_;
        }
    }

    double memory_ = 0.0;  // bandwidth of host memory in bytes per second; 0: no limit
    const std::vector<Step>& steps_;
    std::vector<Link> links_;      // [devices]
    std::vector<double> demands_;  // bytes per second of host memory that copies and the running step want now
    double now_ = 0.0;
    bool computing_ = false;
    bool computed_ = false;  // of the running step, only demanded copies are left
    double seconds_left_ = 0.0;
    std::size_t step_ = 0;
    std::size_t pass_ = 0;  // index of the running pass
};

}  // namespace

SimulatedPass simulate_passes(std::span<const SimulatedDevice> devices, std::span<const std::int32_t> order) {
    CHECK(!devices.empty());
    std::vector<Step> steps;
    std::vector<Stepper> steppers;
    double fixed_seconds = 0.0;
    for (const SimulatedDevice& device : devices) {
        steppers.emplace_back(static_cast<std::int32_t>(steppers.size()), device, steps);
        fixed_seconds = std::max(fixed_seconds, device.request->fixed_seconds);
    }
    for (const std::int32_t device : order) steppers.at(device).add_next_item();
    for (const Stepper& stepper : steppers) CHECK(stepper.is_through(), "the order leaves out items of a device");
    steps.push_back({.seconds = fixed_seconds});
    return Player(devices, steps).play();
}

SimulatedPass simulate_passes(const ResidencyRequest& request, const std::vector<std::size_t>& resident_bytes,
                              std::size_t ring_bytes) {
    const SimulatedDevice device{&request, &resident_bytes, ring_bytes};
    return simulate_passes({&device, 1}, std::vector<std::int32_t>(request.schedule.size(), 0));
}

}  // namespace slipstream
