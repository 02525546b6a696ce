// Folds reports to the width of a terminal: long lines are broken at blanks, and their continuation lines are indented.
// Lines that go to a pipe or a file are not folded.
#pragma once

#include <string>
#include <string_view>

namespace slipstream::tools {

/// Returns the width in columns of the terminal on `descriptor`; 80 if the width is unknown or there is no terminal.
[[nodiscard]] int terminal_columns(int descriptor);

/// Returns the width of stdout in columns, for folded(): 0 (no limit) if stdout is no terminal, 80 if the width of the
/// terminal is unknown.
[[nodiscard]] int stdout_columns();

/// Returns `text` with its lines folded to at most `columns` terminal cells; 0 leaves them unchanged. A line is broken
/// at the last blank that fits. Its continuation lines begin with the indentation of the line plus `indent` blanks, at
/// most columns / 2 together. A word that is longer than a line is not broken, so that a path can be copied.
[[nodiscard]] std::string folded(std::string_view text, int columns, int indent = 2);

}  // namespace slipstream::tools
