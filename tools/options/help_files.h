// Makes the files of an installed program that repeat --help: the manual page, and completion scripts for shells. They
// are made from the declared options, so they always match the program.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tools/options/command.h"

namespace slipstream::tools {

/// Returns the manual page slipstream(1) in roff.
[[nodiscard]] std::string manual_page(std::span<const CommandSpec> commands);

/// Returns the completion script for `shell`: "bash", "zsh" or "fish". Throws UsageError for any other shell.
[[nodiscard]] std::string completion_script(std::string_view shell, std::span<const CommandSpec> commands);

}  // namespace slipstream::tools
