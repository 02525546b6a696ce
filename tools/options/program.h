// Declares a program: its subcommands, and the texts around them. There are two, `slipstream` and `slipstream-lab`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/options/command.h"
#include "tools/options/options.h"

namespace slipstream::tools {

/// For whom a program is made.
enum class Audience : std::uint8_t {
    Users,        // installed, with a manual page and completions
    Researchers,  // slipstream-lab, which is run from a build folder
};

struct ProgramSpec {
    std::string_view name;         // as it is called
    std::string_view purpose;      // first paragraph of the help
    std::string_view first_steps;  // lines at the end of the help, each with its newline; may be empty
    Audience audience = Audience::Users;
    std::vector<CommandSpec> commands;
};

/// Parses `arguments`, which do not contain the program's name. Spellings of llama.cpp are accepted for options that
/// exist here, and its options for what happens here anyway (llama_options.h); for others the error says what to use
/// instead. `generate` with -cnv becomes `chat`. The result refers to `program`.
/// Throws UsageError.
[[nodiscard]] ParsedCommandLine parse_command_line(const ProgramSpec& program, std::span<const std::string> arguments);

}  // namespace slipstream::tools
