// The option --stats, and where it writes the statistics of a run.
#pragma once

#include <optional>
#include <string>

#include "tools/base/json_object.h"
#include "tools/options/command.h"
#include "tools/terminal/file_output.h"

namespace slipstream::tools {

/// Declares --stats.
[[nodiscard]] OptionSpec statistics_option();

/// Writes statistics to a file, to stdout, or nowhere. The file is created at the start, under a temporary name next to
/// its path, so that a place that cannot be written is reported before the run and not after it.
class StatisticsOutput {
public:
    /// `where` is the value of --stats: a file, "-" for stdout, or nothing. Throws IoError.
    explicit StatisticsOutput(const std::optional<std::string>& where);

    /// Writes `json` to the file, which gets its name then, or to stdout on a line of its own after the text of
    /// `output`. Does nothing without --stats. Throws IoError.
    void write(const JsonObject& json, TextOutput& output);

private:
    bool on_stdout_;
    std::optional<WholeFile> file_;
};

}  // namespace slipstream::tools
