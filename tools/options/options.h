// What the command line gave (parse_command_line() in program.h). Only options.cpp uses the argument library (CLI11).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/options/command.h"

namespace slipstream::tools {

/// Values of each option that is on the command line, by option name, in the order given; a flag has the value "true".
using OptionValues = std::map<std::string, std::vector<std::string>, std::less<>>;

struct ParsedCommandLine {
    const CommandSpec* command = nullptr;  // null: only help or the version was asked for, and `text` is the answer
    std::string text;
    OptionValues values;
    // Notes for the user about options of llama.cpp that were accepted and have no effect here.
    std::vector<std::string> notes;
};

}  // namespace slipstream::tools
