// Passes played through on a virtual clock: what stands behind simulate_passes() of residency_plan.h.
//
// A program becomes steps. A resident stretch of a block is computed when its turn comes; each streamed piece of it
// waits for its copy, is computed, and gives its slot back. The link copies the pieces in the same order, as far as the
// ring has room (slots of variable size, first in, first out, as in transfer_ring.h) and at most into the next pass, as
// pass_feed.h does. Between two passes the link goes on while the device does what is outside the program. Where copies
// and computing together ask more of host memory than it gives, they share it evenly. Passes are repeated until they
// take the same time.
#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "offload/residency_plan.h"

namespace slipstream {

namespace {

constexpr std::size_t kSlotAlignBytes = 64;
constexpr std::size_t kCopiesInRing = 4;
constexpr std::size_t kMaxPasses = 16;
constexpr std::size_t kAveragedPasses = 8;  // of those, where they do not settle
constexpr double kSettled = 1e-6;           // relative difference of two passes that count as equal

/// A stretch of a block that is computed at once.
struct Step {
    double seconds = 0.0;          // with host memory to itself
    double host_rate = 0.0;        // bytes a second that it then asks of host memory
    std::size_t copied_bytes = 0;  // 0: resident
};

class Steps {
public:
    Steps(const ResidencyRequest& request, const std::vector<std::size_t>& resident_bytes, std::size_t ring_bytes)
        : request_(request), ring_bytes_(ring_bytes) {
        CHECK(resident_bytes.size() == request.program.size(), "{} items, {} decisions", request.program.size(),
              resident_bytes.size());
        for (std::size_t i = 0; i < request.program.size(); ++i) add_item(request.program[i], resident_bytes[i]);
        steps_.push_back({.seconds = request.fixed_seconds});
    }

    [[nodiscard]] const std::vector<Step>& all() const { return steps_; }

private:
    void add_item(const PlanItem& item, std::size_t resident) {
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

    // Most of one copy.
    [[nodiscard]] std::size_t copy_bytes(const PlanItem& item) const {
        return std::max(item.unit_bytes,
                        std::min(item.transfer_bytes, ring_bytes_ / kCopiesInRing / item.unit_bytes * item.unit_bytes));
    }

    void add_step(const PlanItem& item, double share, std::size_t copied) {
        const double host_bytes = item.host_bytes * share;
        Step step{.seconds = item.compute_seconds * share, .copied_bytes = copied};
        if (request_.memory_bytes_per_second > 0.0)
            step.seconds = std::max(step.seconds, host_bytes / request_.memory_bytes_per_second);
        if (step.seconds > 0.0) step.host_rate = host_bytes / step.seconds;
        steps_.push_back(step);
    }

    const ResidencyRequest& request_;
    std::size_t ring_bytes_;
    std::vector<Step> steps_;
};

/// Where slots lie in a ring: as TransferRing places them.
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
    std::size_t end_ = 0;             // of the latest slot
    std::deque<std::size_t> begins_;  // of slots in use, oldest first
};

/// What part of its demand one of two is served that share `memory` bytes a second (0: no limit): nobody gets less than
/// half of it who asks for that much, and what one does not ask for is the other's.
double share_of_demand(double demand, double other, double memory) {
    if (demand <= 0.0 || memory <= 0.0) return 1.0;
    return std::min(1.0, std::max(memory - other, memory / 2.0) / demand);
}

/// Link and device, one event after the other.
class Player {
public:
    Player(const ResidencyRequest& request, const std::vector<Step>& steps, std::size_t ring_bytes)
        : request_(request), steps_(steps), ring_(ring_bytes) {
        for (const Step& step : steps)
            if (step.copied_bytes > 0) copies_.push_back(step.copied_bytes);
        CHECK(copies_.empty() || request.link_bytes_per_second > 0.0, "{} copies over a link of {} bytes a second",
              copies_.size(), request.link_bytes_per_second);
    }

    SimulatedPass play() {
        std::vector<double> ends{0.0};
        std::vector<double> busy{0.0};
        std::size_t n_equal = 0;
        while (n_equal < 2 && ends.size() <= kMaxPasses) {
            while (pass_ < ends.size()) advance();
            ends.push_back(now_);
            busy.push_back(busy_);
            if (ends.size() < 3) continue;
            const double last = ends.back() - ends[ends.size() - 2];
            const double before = ends[ends.size() - 2] - ends[ends.size() - 3];
            n_equal = std::abs(last - before) <= kSettled * last ? n_equal + 1 : 0;
        }
        const std::size_t n = std::min(n_equal == 2 ? 1 : kAveragedPasses, ends.size() - 1);
        const double seconds = ends.back() - ends[ends.size() - 1 - n];
        const double busy_seconds = busy.back() - busy[busy.size() - 1 - n];
        return {.seconds = seconds / static_cast<double>(n),
                .link_busy_fraction = seconds > 0.0 ? std::min(busy_seconds / seconds, 1.0) : 0.0};
    }

private:
    [[nodiscard]] const Step& step() const { return steps_[step_]; }

    void begin_what_can() {
        if (!copying_ && !copies_.empty() && n_pushed_ / copies_.size() <= pass_ + 1) {
            const std::size_t bytes = copies_[n_pushed_ % copies_.size()];
            const std::size_t slot = round_up(bytes, kSlotAlignBytes);
            if (ring_.has_room(slot)) {
                ring_.push(slot);
                ++n_pushed_;
                copying_ = true;
                bytes_left_ = static_cast<double>(bytes);
            }
        }
        if (!computing_ && (step().copied_bytes == 0 || n_arrived_ > n_released_)) {
            computing_ = true;
            seconds_left_ = step().seconds;
        }
        CHECK(copying_ || computing_, "a copy of {} bytes does not fit into the ring", step().copied_bytes);
    }

    // To the end of the copy or the step under way, whichever comes first.
    void advance() {
        begin_what_can();
        const double copy_demand =
            copying_ ? request_.link_bytes_per_second * request_.host_bytes_per_copied_byte : 0.0;
        const double compute_demand = computing_ ? step().host_rate : 0.0;
        const double link = request_.link_bytes_per_second *
                            share_of_demand(copy_demand, compute_demand, request_.memory_bytes_per_second);
        const double speed = share_of_demand(compute_demand, copy_demand, request_.memory_bytes_per_second);
        constexpr double kNever = std::numeric_limits<double>::infinity();
        const double to_copy = copying_ ? bytes_left_ / link : kNever;
        const double to_compute = computing_ ? seconds_left_ / speed : kNever;
        const double elapsed = std::min(to_copy, to_compute);
        now_ += elapsed;
        if (copying_) {
            busy_ += elapsed;
            bytes_left_ -= elapsed * link;
        }
        if (computing_) seconds_left_ -= elapsed * speed;
        if (to_copy <= elapsed) {
            copying_ = false;
            ++n_arrived_;
        }
        if (to_compute <= elapsed) end_step();
    }

    void end_step() {
        computing_ = false;
        if (step().copied_bytes > 0) {
            ring_.pop();
            ++n_released_;
        }
        if (++step_ == steps_.size()) {
            step_ = 0;
            ++pass_;
        }
    }

    const ResidencyRequest& request_;
    const std::vector<Step>& steps_;
    RingRoom ring_;
    std::vector<std::size_t> copies_;  // bytes of each, of one pass
    double now_ = 0.0;
    double busy_ = 0.0;  // of the link
    bool copying_ = false;
    double bytes_left_ = 0.0;
    std::size_t n_pushed_ = 0;
    std::size_t n_arrived_ = 0;
    bool computing_ = false;
    double seconds_left_ = 0.0;
    std::size_t n_released_ = 0;
    std::size_t step_ = 0;
    std::size_t pass_ = 0;  // the running one
};

}  // namespace

SimulatedPass simulate_passes(const ResidencyRequest& request, const std::vector<std::size_t>& resident_bytes,
                              std::size_t ring_bytes) {
    const Steps steps(request, resident_bytes, ring_bytes);
    return Player(request, steps.all(), ring_bytes).play();
}

}  // namespace slipstream
