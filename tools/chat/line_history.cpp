#include "tools/chat/line_history.h"

#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "kernels/base/error.h"
#include "offload/atomic_file.h"
#include "tools/terminal/file_output.h"

namespace slipstream::tools {

namespace {

std::string escaped(std::string_view line) {
    std::string result;
    for (const char c : line) {
        if (c == '\\')
            result += "\\\\";
        else if (c == '\n')
            result += "\\n";
        else
            result += c;
    }
    return result + "\n";
}

std::string unescaped(std::string_view line) {
    std::string result;
    for (std::size_t i = 0; i < line.size(); ++i) {
        if (line[i] == '\\' && i + 1 < line.size()) {
            result += line[++i] == 'n' ? '\n' : line[i];
        } else {
            result += line[i];
        }
    }
    return result;
}

}  // namespace

std::filesystem::path history_path(const EnvironmentReader& environment) {
    if (const auto state = environment("XDG_STATE_HOME"))
        return std::filesystem::path(*state) / "slipstream" / "chat_history";
    if (const auto home = environment("HOME"))
        return std::filesystem::path(*home) / ".local" / "state" / "slipstream" / "chat_history";
    return {};
}

LineHistory::LineHistory(std::filesystem::path path) : path_(std::move(path)) {
    std::error_code error;
    if (path_.empty() || !std::filesystem::is_regular_file(path_, error)) return;
    std::string text;
    try {
        text = read_bytes(path_);
    } catch (const IoError&) {
        return;  // an unreadable file is an empty history (line_history.h)
    }
    std::string_view rest = text;
    while (!rest.empty()) {
        const std::size_t end = rest.find('\n');
        if (end != 0) lines_.push_back(unescaped(rest.substr(0, end)));
        rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    }
    if (lines_.size() <= kMostLines) return;
    lines_.erase(lines_.begin(), lines_.end() - static_cast<std::ptrdiff_t>(kMostLines));
    // Only half of kMostLines is written, so that the file is not rewritten at each start.
    std::string kept;
    for (std::size_t i = kMostLines / 2; i < lines_.size(); ++i) kept += escaped(lines_[i]);
    try {
        AtomicFile file(path_, {.new_mode = kOwnerOnlyMode});
        file.write(std::as_bytes(std::span(kept)));
        file.commit();
    } catch (const IoError&) {
        return;  // the file stays longer than kMostLines
    }
}

bool LineHistory::add(const std::string& line) {
    if (line.empty() || (!lines_.empty() && lines_.back() == line)) return true;
    lines_.push_back(line);
    if (path_.empty()) return true;
    std::error_code error;
    make_private_folder(path_.parent_path(), error);
    return append_to_private_file(path_, escaped(line)) == 0;
}

}  // namespace slipstream::tools
