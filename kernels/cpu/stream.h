// Streams of a CPU device. Events: event.h.
#pragma once

#include <memory>
#include <string>

#include "kernels/cpu_faults.h"
#include "kernels/device.h"

namespace slipstream::cpu {

class LinkClock;

/// Returns a compute stream: each call does its work on the calling thread before it returns. `faults` (may be null)
/// must outlive the stream; `place` names the stream in messages ("cpu").
[[nodiscard]] std::unique_ptr<Stream> make_compute_stream(CpuFaults* faults, const std::string& place);

/// What a copy stream needs of its device. `link` and `faults` must outlive the stream.
struct CopyStreamSettings {
    LinkClock& link;    // the clock of the stream's direction
    CpuFaults* faults;  // faults for tests, stop flag (cpu_faults.h); may be null
    std::string place;  // name of the stream in messages: "cpu, copies in"
};

/// Returns a copy stream, which runs its copies on a thread of its own. Its queue is fixed at 1024 entries, so that the
/// stream allocates nothing after its construction; if the queue is full, calls block. The destructor waits until the
/// queue is empty, but does not wait for the ends of turns on the link.
[[nodiscard]] std::unique_ptr<Stream> make_copy_stream(const CopyStreamSettings& settings);

}  // namespace slipstream::cpu
