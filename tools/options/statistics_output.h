// --stats: where the figures of a run go.
#pragma once

#include <optional>
#include <string>

#include "tools/base/json_object.h"
#include "tools/options/command.h"
#include "tools/terminal/file_output.h"

namespace slipstream::tools {

/// --stats.
[[nodiscard]] OptionSpec statistics_option();

/// Where statistics go. A file is made at the start, beside its place, so that a place that cannot be written is found
/// before the work and not after it.
class StatisticsOutput {
public:
    /// `where` as --stats gives it: a file, "-" for stdout, or nothing. Throws IoError.
    explicit StatisticsOutput(const std::optional<std::string>& where);

    /// To the file; or to stdout, on a line of its own behind what `output` has written. Throws IoError.
    void write(const JsonObject& json, TextOutput& output);

private:
    bool on_stdout_;
    std::optional<WholeFile> file_;
};

}  // namespace slipstream::tools
