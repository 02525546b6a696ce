// When an event was completed, for traces.
#pragma once

#include <chrono>
#include <optional>

#include "kernels/device.h"

namespace slipstream {

/// Returns the time at which the last completed use of `event` was completed. nullopt if the device does not tell: only
/// events of CPU devices keep this time.
[[nodiscard]] std::optional<std::chrono::steady_clock::time_point> completion_time(const Event& event);

}  // namespace slipstream
