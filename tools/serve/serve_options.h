// Options of `serve` itself: where it listens, and who may use it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/options/command.h"
#include "tools/serve/access.h"

namespace slipstream::tools {

class Settings;

struct ListenSettings {
    std::string host;  // empty: 127.0.0.1 and ::1
    std::uint16_t port = 8080;
    AccessRules access{};
};

/// Declares --host, --port, --api-key-file, --insecure, --allow-host, --allow-origin, --alias and --kept-memory.
[[nodiscard]] std::vector<OptionSpec> serve_option_specs();
/// Reads the key from --api-key-file, else from the variable SLIPSTREAM_API_KEY. Throws UsageError if the host is not a
/// loopback address and there is neither a key nor --insecure, and what read_text() throws.
[[nodiscard]] ListenSettings listen_settings(const Settings& settings);

}  // namespace slipstream::tools
