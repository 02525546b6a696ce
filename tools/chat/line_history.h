// The lines that a person typed, kept between runs in the user's state folder: one a line, newlines and backslashes
// escaped, readable by nobody else.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/machine/environment.h"

namespace slipstream::tools {

/// $XDG_STATE_HOME/slipstream/chat_history, else below ~/.local/state; empty where neither is known.
[[nodiscard]] std::filesystem::path history_path(const EnvironmentReader& environment);

class LineHistory {
public:
    static constexpr std::size_t kMostLines = 1000;

    /// Reads the last lines of the file, which need not be there; what cannot be read is no history. An empty path
    /// keeps nothing.
    explicit LineHistory(std::filesystem::path path);

    [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }
    /// Appends a line that differs from the one before, to the file too. False where the file does not take it.
    bool add(const std::string& line);

private:
    std::filesystem::path path_;
    std::vector<std::string> lines_;
};

}  // namespace slipstream::tools
