// Streams of a CPU device (events: event.h).
#pragma once

#include <memory>
#include <string>

#include "kernels/cpu_faults.h"
#include "kernels/device.h"

namespace slipstream::cpu {

class LinkClock;

/// Runs every call at once on the calling thread. `faults`, where set, outlives it; `place` as below.
[[nodiscard]] std::unique_ptr<Stream> make_compute_stream(CpuFaults* faults, const std::string& place);

/// What copy streams know of their device; all must outlive them.
struct CopyStreamSettings {
    LinkClock& link;    // of the stream's direction
    CpuFaults* faults;  // or null
    std::string place;  // for messages: "cpu, into the device"
};

/// Owns a thread and a fixed queue of 1024 entries (a full queue blocks the caller), so that it allocates nothing once
/// made. The destructor waits until the queue is empty, but no longer for the link.
[[nodiscard]] std::unique_ptr<Stream> make_copy_stream(const CopyStreamSettings& settings);

}  // namespace slipstream::cpu
