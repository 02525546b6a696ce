// Text on its way to the user: the sink, the bar while a prompt is read, the terminal's live rate, and a closed pipe
// that stops the work. One answer, one stream.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tools/terminal/console.h"
#include "tools/terminal/file_output.h"

namespace slipstream::tools {

class TextStream {
public:
    /// Both outlive this.
    TextStream(TextOutput& output, Console& console);
    ~TextStream();  // what comes next, where something went wrong, begins on a line of its own
    TextStream(const TextStream&) = delete;
    TextStream& operator=(const TextStream&) = delete;

    /// Throws IoError. A closed pipe sets the cancel flag.
    void write(std::string_view text);
    void on_prefill(std::int64_t done, std::int64_t total);
    /// Where tokens end, for the time that is left.
    void expect(std::int64_t n_tokens) { rate_.expect(n_tokens); }
    /// A note that is told at once, or where that would tear a line of text on the terminal, behind it.
    void note(std::string message);
    /// So many tokens are there.
    void on_tokens(std::int64_t n);
    /// The text is complete: nothing of bar and rate is left, and a terminal gets its final newline. Where messages and
    /// text share a pipe or a file the messages begin with one.
    void finish();

private:
    void print_note();

    TextOutput& output_;
    Console& console_;
    std::string note_;  // that waits for the end of a line
    bool on_terminal_;
    bool beside_text_;  // messages go where the text goes: to a terminal, a pipe, a file
    bool finished_ = false;
    LiveRate rate_;
    ProgressBar prefill_;
};

}  // namespace slipstream::tools
