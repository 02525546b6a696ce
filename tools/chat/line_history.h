// The lines that the user typed, kept between runs in a file of the user's state folder: one per line, newlines and
// backslashes escaped, mode 0600.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/machine/environment.h"

namespace slipstream::tools {

/// Returns the path of the history: $XDG_STATE_HOME/slipstream/chat_history, else
/// ~/.local/state/slipstream/chat_history; empty if neither XDG_STATE_HOME nor HOME is set.
[[nodiscard]] std::filesystem::path history_path(const EnvironmentReader& environment);

class LineHistory {
public:
    static constexpr std::size_t kMostLines = 1000;

    /// Reads the last kMostLines lines of the file. If the file is missing or cannot be read, the history is empty.
    /// With an empty path, nothing is kept.
    explicit LineHistory(std::filesystem::path path);

    [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }
    /// Appends a line here and to the file, unless it equals the previous one. Returns false if the file cannot be
    /// written; the line is then kept for this run only.
    bool add(const std::string& line);

private:
    std::filesystem::path path_;
    std::vector<std::string> lines_;
};

}  // namespace slipstream::tools
