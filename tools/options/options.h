// The command line. The only file behind this header that knows the argument library.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/options/command.h"

namespace slipstream::tools {

/// Values by option name, in the order given; a flag has the value "true".
using OptionValues = std::map<std::string, std::vector<std::string>, std::less<>>;

struct ParsedCommandLine {
    const CommandSpec* command = nullptr;  // null: a question about the program itself, `text` is the answer
    std::string text;
    OptionValues values;
};

/// `arguments` without the program's name. Names of llama.cpp's that are options here are understood; those that have
/// no counterpart are answered in the error. Throws UsageError.
[[nodiscard]] ParsedCommandLine parse_command_line(std::span<const CommandSpec> commands,
                                                   std::span<const std::string> arguments);

}  // namespace slipstream::tools
