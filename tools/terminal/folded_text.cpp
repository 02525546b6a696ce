#include "tools/terminal/folded_text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/text/utf8.h"
#include "tools/terminal/text_cells.h"

namespace slipstream::tools {

namespace {

// Width of a terminal, in columns, if the system does not report one: the usual width.
constexpr int kUsualColumns = 80;

// Returns the byte offset at which the first `columns` cells of `line` end; the size of `line` if it has fewer cells.
std::size_t end_of(std::string_view line, std::size_t columns) {
    std::size_t at = 0;
    for (std::size_t cells = 0; at < line.size();) {
        const std::size_t length = next_utf8(line.substr(at)).length;
        cells += static_cast<std::size_t>(cells_of(line.substr(at, length)));
        if (cells > columns) break;
        at += length;
    }
    return at;
}

void fold_line(std::string& out, std::string_view line, std::size_t columns, std::size_t indent) {
    const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
    const std::string lead(std::min(begin + indent, columns / 2), ' ');
    std::size_t held = begin;  // a fold must be past this byte: the indentation of the line is kept
    for (std::size_t room = columns;; room = columns - lead.size(), held = 0) {
        const std::size_t end = end_of(line, room);
        if (end == line.size()) break;
        std::size_t cut = line.rfind(' ', end);
        if (cut == std::string_view::npos || cut <= held) cut = line.find(' ', std::max(end, held + 1));
        if (cut == std::string_view::npos) break;
        const std::size_t next = line.find_first_not_of(' ', cut);
        if (next == std::string_view::npos) break;
        out.append(line.substr(0, line.find_last_not_of(' ', cut) + 1)).append("\n").append(lead);
        line.remove_prefix(next);
    }
    out.append(line);
}

}  // namespace

int terminal_columns(int descriptor) {
    winsize size{};
    return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualColumns;
}

int stdout_columns() {
    return isatty(STDOUT_FILENO) == 1 ? terminal_columns(STDOUT_FILENO) : 0;
}

std::string folded(std::string_view text, int columns, int indent) {
    if (columns <= 0) return std::string(text);
    std::string out;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        fold_line(out, text.substr(0, end), columns, indent);
        if (end < text.size()) out += '\n';
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return out;
}

}  // namespace slipstream::tools
