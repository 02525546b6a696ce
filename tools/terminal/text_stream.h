// Shows one answer while it is generated: writes its text to the output, draws the progress bar while the prompt is
// processed and the live rate on a terminal, and cancels the work if the reader closes the pipe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tools/terminal/console.h"
#include "tools/terminal/file_output.h"

namespace slipstream::tools {

/// The display of one answer; make a new stream for each answer.
class TextStream {
public:
    /// `output` and `console` must outlive the stream.
    TextStream(TextOutput& output, Console& console);
    /// If finish() was not called (the work failed) and messages go where the text goes, ends an unfinished line of
    /// text, so that the error message begins a line of its own.
    ~TextStream();
    TextStream(const TextStream&) = delete;
    TextStream& operator=(const TextStream&) = delete;

    /// Writes the next part of the text. Throws IoError if it cannot be written. If the reader has closed the pipe,
    /// sets cancel_flag() (signals.h) instead.
    void write(std::string_view text);
    /// Shows the next part of a thought: dimmed where the text goes to a terminal, else on stderr, unless -q was given.
    /// The first write() after it begins a new paragraph. Throws as write() does.
    void write_thought(std::string_view text);
    /// Draws the progress bar of the prompt: `done` of `total` tokens are processed. Draws nothing if the bar would
    /// overwrite an unfinished line of text.
    void on_prefill(std::int64_t done, std::int64_t total);
    /// Sets the number of generated tokens after which the text ends, for the time left that the live rate shows.
    void expect(std::int64_t n_tokens) { rate_.expect(n_tokens); }
    /// Prints a note at once. If messages go where the text goes and the text is within a line, prints the note after
    /// that line; a later note replaces one that still waits.
    void note(std::string message);
    /// Call when `n` tokens have been generated in total: removes the bar of the prompt and updates the live rate.
    void on_tokens(std::int64_t n);
    /// Call when the text is complete: erases the bar and the rate, and writes the end of the text that is held back
    /// for word wrapping. If the text does not end with a newline, a terminal gets one; if messages and text share a
    /// pipe or a file, the next message begins with one (Console::end_line). Prints a note that still waits. Throws
    /// IoError.
    void finish();

private:
    void print_note();
    void end_thought();
    void show_thought(std::string_view text);

    TextOutput& output_;
    Console& console_;
    std::string note_;  // waits for the end of a line of text; empty: none
    bool on_terminal_;  // the text goes to a terminal
    bool beside_text_;  // whether messages go to the same terminal, pipe or file as the text
    bool finished_ = false;
    bool in_thought_ = false;
    LiveRate rate_;
    ProgressBar prefill_;
};

}  // namespace slipstream::tools
