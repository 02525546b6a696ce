// Text of --help: the options of a command grouped by subject, wrapped at 80 columns. One table in help_text.cpp
// assigns each option to a subject, and marks options for research, which only --help-all shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/options/program.h"

namespace slipstream::tools {

/// Common: options for general use, with their first short and first long spelling. All: also options for research, and
/// every spelling.
enum class HelpDepth : std::uint8_t { Common, All };

/// Returns `text` in lines of at most `columns` terminal cells, without the indent; each line but the first is indented
/// by `indent` blanks. Single line breaks of `text` count as blanks, empty lines are kept. A longer word gets a line of
/// its own.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent = 0);

/// Returns the spellings of an option as declared: "-n", "--max-tokens", ...; a spelling without dashes is positional.
[[nodiscard]] std::vector<std::string> spellings_of(const OptionSpec& option);

/// The options of a command that belong to one subject.
struct OptionGroup {
    std::string_view title;
    std::vector<const OptionSpec*> options;
};
/// Returns the options of `command` and the common options by subject, in the order in which the help shows them. The
/// pointers refer to `command` and to common_options().
[[nodiscard]] std::vector<OptionGroup> grouped_options(const CommandSpec& command, HelpDepth depth);

[[nodiscard]] std::string program_help(const ProgramSpec& program);
/// `program` is the name of the program that has the command.
[[nodiscard]] std::string command_help(std::string_view program, const CommandSpec& command, HelpDepth depth);

}  // namespace slipstream::tools
