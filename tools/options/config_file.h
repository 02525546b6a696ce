// Finds and reads the configuration file.
#pragma once

#include <string>
#include <vector>

#include "tools/machine/environment.h"
#include "tools/options/options.h"
#include "tools/options/toml_file.h"

namespace slipstream::tools {

struct ConfigFile {
    std::string name;  // path of the file; empty: there is none
    std::vector<TomlEntry> entries;
};

/// Reads the file that --config or SLIPSTREAM_CONFIG names, else slipstream/config.toml in XDG_CONFIG_HOME or ~/.config
/// if it exists. Returns no entries if --no-config or SLIPSTREAM_NO_CONFIG is true, unless --config outranks the
/// variable. Throws UsageError if both are given in one place, or the file cannot be read, is malformed or over 4 MiB.
[[nodiscard]] ConfigFile read_config_file(const OptionValues& command_line, const EnvironmentReader& environment);

}  // namespace slipstream::tools
