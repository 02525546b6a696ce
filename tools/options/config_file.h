// Which configuration file counts, and what it says.
#pragma once

#include <string>
#include <vector>

#include "tools/machine/environment.h"
#include "tools/options/options.h"
#include "tools/options/toml_file.h"

namespace slipstream::tools {

struct ConfigFile {
    std::string name;  // empty: there is none
    std::vector<TomlEntry> entries;
};

/// The file of --config or SLIPSTREAM_CONFIG, else slipstream/config.toml below XDG_CONFIG_HOME or ~/.config if it is
/// there, unless --no-config or SLIPSTREAM_NO_CONFIG. Throws UsageError where a named file cannot be read or any is
/// malformed.
[[nodiscard]] ConfigFile read_config_file(const OptionValues& command_line, const EnvironmentReader& environment);

}  // namespace slipstream::tools
