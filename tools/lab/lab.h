// The commands of slipstream-lab.
#pragma once

#include "tools/options/program.h"

namespace slipstream::tools {

[[nodiscard]] CommandSpec card_command();
[[nodiscard]] CommandSpec drafts_command();
[[nodiscard]] CommandSpec ops_command();
[[nodiscard]] CommandSpec random_model_command();
[[nodiscard]] CommandSpec replay_command();
[[nodiscard]] CommandSpec routes_command();
[[nodiscard]] CommandSpec tokenizers_command();
[[nodiscard]] CommandSpec views_command();

/// Returns the program with all its commands.
[[nodiscard]] ProgramSpec lab_program();

}  // namespace slipstream::tools
