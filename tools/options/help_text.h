// What --help prints: the options of a command by subject, words wrapped at 80 columns. Which subject an option belongs
// to, and which ones are for research and stand under --help-all alone, is one table here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/options/command.h"

namespace slipstream::tools {

/// All: options for research and every spelling as well.
enum class HelpDepth : std::uint8_t { Common, All };

/// `text` with lines of at most `columns`, each behind `indent` blanks but for the first; single line breaks in it
/// count as blanks, empty lines stay. A word that is longer stands alone.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent = 0);

/// "-n", "--max-tokens", ... of an option, as declared; one without dashes is positional.
[[nodiscard]] std::vector<std::string> spellings_of(const OptionSpec& option);

/// The options of a command by subject, subjects in the order in which they are shown.
struct OptionGroup {
    std::string_view title;
    std::vector<const OptionSpec*> options;
};
[[nodiscard]] std::vector<OptionGroup> grouped_options(const CommandSpec& command, HelpDepth depth);

[[nodiscard]] std::string program_help(std::span<const CommandSpec> commands);
[[nodiscard]] std::string command_help(const CommandSpec& command, HelpDepth depth);

}  // namespace slipstream::tools
