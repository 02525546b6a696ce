// Reports that fit a terminal: long lines folded at blanks, what goes on behind them indented. To a pipe or a file
// lines are as long as they are.
#pragma once

#include <string>
#include <string_view>

namespace slipstream::tools {

/// Columns of the terminal on `descriptor`; 80 if it does not say.
[[nodiscard]] int terminal_columns(int descriptor);

/// Columns of stdout; 0, which is no limit, where it is no terminal, and 80 where the terminal does not say.
[[nodiscard]] int stdout_columns();

/// `text` with lines of at most `columns` cells (0: as they are), folded at the last blank that fits; the rest of
/// a line stands behind its own indentation and `indent` blanks. A word that is longer than a line stays whole, so that
/// a path can be copied.
[[nodiscard]] std::string folded(std::string_view text, int columns, int indent = 2);

}  // namespace slipstream::tools
