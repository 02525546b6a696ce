#include "tools/options/statistics_output.h"

namespace slipstream::tools {

OptionSpec statistics_option() {
    return {"stats", "--stats", "F", "Write statistics as JSON ('-': to stdout, after the text)",
            OptionRole::OutputFileOrStdout};
}

StatisticsOutput::StatisticsOutput(const std::optional<std::string>& where) : on_stdout_(where == "-") {
    if (where && !on_stdout_) file_.emplace(*where);
}

void StatisticsOutput::write(const JsonObject& json, TextOutput& output) {
    if (file_) {
        file_->write(json.to_text(JsonLayout::Indented));
        file_->complete();
    } else if (on_stdout_) {
        const std::string text = json.to_text(JsonLayout::OneLine);
        if (output.is_stdout()) {
            output.write((output.last_byte() == '\n' ? "" : "\n") + text);
        } else {
            TextOutput(std::nullopt).write(text);
        }
    }
}

}  // namespace slipstream::tools
