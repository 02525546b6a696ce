// Runs a program: finds the subcommand, gives it its settings, and turns each error into one line and an exit code: 0
// done, 1 the request cannot be served, 2 usage, 129, 130 and 143 interrupted by a signal.
#pragma once

#include "tools/options/program.h"

namespace slipstream::tools {

/// Call from main(), before any thread is started. Returns the exit code.
[[nodiscard]] int program_main(const ProgramSpec& program, int argc, char** argv);

}  // namespace slipstream::tools
