#include "tools/options/command.h"

#include <array>

namespace slipstream::tools {

std::span<const OptionSpec> common_options() {
    static const std::array kOptions{
        OptionSpec{"quiet", "-q,--quiet", "", "Print errors only"},
        OptionSpec{"verbose", "-v,--verbose", "", "Print more, e.g. where each setting comes from"},
        OptionSpec{"log-file", "--log-file", "F", "Append all messages to this file", OptionRole::OutputFile},
        OptionSpec{"config", "--config", "F", "Configuration file [slipstream/config.toml of the user]",
                   OptionRole::InputFile},
        OptionSpec{"no-config", "--no-config", "", "Use no configuration file"},
    };
    return kOptions;
}

}  // namespace slipstream::tools
