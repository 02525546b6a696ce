// Files that come with an installed program and say what --help says: the manual page, and completions of shells. Made
// from the options themselves, so that they never tell of another version.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tools/options/command.h"

namespace slipstream::tools {

/// slipstream(1), for man.
[[nodiscard]] std::string manual_page(std::span<const CommandSpec> commands);

/// A completion script for "bash", "zsh" or "fish". Throws UsageError of any other shell.
[[nodiscard]] std::string completion_script(std::string_view shell, std::span<const CommandSpec> commands);

}  // namespace slipstream::tools
