// Options that say how much memory there is and how fast the link to it: what does not fit streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/device.h"

namespace slipstream::tools {

class Settings;
struct OptionSpec;

struct OffloadOptions {
    std::optional<std::size_t> device_memory;   // not given: a CPU has no limit, and nothing streams
    std::size_t host_memory = 0;                // most that streamed weights and KV may take of the host
    std::optional<std::size_t> ring;            // not given: planned
    double link_bytes_per_second = 0.0;         // 0: not throttled
    std::optional<std::int64_t> expect_tokens;  // of a pass, to plan for
};

/// --device-memory, --host-memory, --link-gib-s, --ring, --expect-tokens.
[[nodiscard]] std::vector<OptionSpec> offload_option_specs();
/// Throws UsageError where a value is malformed, or an option cannot act on a device of that kind: a ring or a link on
/// a CPU without --device-memory, or a throttled link on a card.
[[nodiscard]] OffloadOptions offload_options(const Settings& settings, DeviceKind device = DeviceKind::Cpu);

/// Bytes of "8G" = "8GB" = "8GiB", "1.5T", "300M", "64k", "4096"; nothing where it is malformed or does not fit.
[[nodiscard]] std::optional<std::size_t> parse_size(std::string_view text);

}  // namespace slipstream::tools
