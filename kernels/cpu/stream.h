// Streams and events of a CPU device.
#pragma once

#include <memory>

#include "kernels/device.h"

namespace slipstream::cpu {

/// StreamKind::Compute runs every call on the calling thread; StreamKind::Copy owns a thread and a fixed queue of 1024
/// entries (a full queue blocks the caller), so that it allocates nothing once made.
[[nodiscard]] std::unique_ptr<Stream> make_stream(StreamKind kind);
[[nodiscard]] std::unique_ptr<Event> make_event();

}  // namespace slipstream::cpu
