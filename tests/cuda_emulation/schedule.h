// In what order the emulation runs the threads of a block, and when asynchronous copies land: the orders that a card
// may choose, at their extremes. Run-ahead lets one warp go as far ahead of the others as barriers allow; a missing
// barrier shows there, where lockstep and random orders hide it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace slipstream::emulation {

enum class Order : std::uint8_t {
    Lockstep,         // thread by thread, each to its next meeting point
    RunAhead,         // warp 0 first, as far as it gets
    ReverseRunAhead,  // the last warp first
};
enum class CopyLands : std::uint8_t { AtIssue, AtWait };

struct Schedule {
    Order order = Order::Lockstep;
    CopyLands copies = CopyLands::AtIssue;
};

inline constexpr Schedule kAllSchedules[] = {
    {Order::Lockstep, CopyLands::AtIssue},        {Order::Lockstep, CopyLands::AtWait},
    {Order::RunAhead, CopyLands::AtIssue},        {Order::RunAhead, CopyLands::AtWait},
    {Order::ReverseRunAhead, CopyLands::AtIssue}, {Order::ReverseRunAhead, CopyLands::AtWait},
};

/// "RunAhead_CopiesAtWait": for the names of test cases.
[[nodiscard]] std::string schedule_name(Schedule schedule);

/// Used by launches from now on, in every thread. Set between launches.
void set_schedule(Schedule schedule);
[[nodiscard]] Schedule current_schedule();

/// Sets a schedule for a scope.
class ScopedSchedule {
public:
    explicit ScopedSchedule(Schedule schedule) : before_(current_schedule()) { set_schedule(schedule); }
    ~ScopedSchedule() { set_schedule(before_); }
    ScopedSchedule(const ScopedSchedule&) = delete;
    ScopedSchedule& operator=(const ScopedSchedule&) = delete;

private:
    Schedule before_;
};

}  // namespace slipstream::emulation
