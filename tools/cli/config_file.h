// Which configuration file counts, and what it says.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/options.h"
#include "tools/cli/toml_file.h"
#include "tools/engine/environment.h"

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
