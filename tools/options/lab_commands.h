// The commands of slipstream-lab (tools/lab), by name, so that `slipstream` can say where they are, and leaves their
// sections of the configuration file alone.
#pragma once

#include <string>
#include <string_view>

namespace slipstream::tools {

struct CommandSpec;

[[nodiscard]] bool is_lab_command(std::string_view name);

/// Returns the command of slipstream-lab that has the option `flag`, "--views", which `command` had earlier; empty if
/// there is none.
[[nodiscard]] std::string_view lab_command_of(const CommandSpec& command, std::string_view flag);

/// Returns the error for `what`, which is in slipstream-lab as `lab_command`: how it is called there, and how to build
/// it.
[[nodiscard]] std::string where_lab_is(std::string_view what, std::string_view lab_command);

}  // namespace slipstream::tools
