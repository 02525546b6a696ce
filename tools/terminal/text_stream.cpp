#include "tools/terminal/text_stream.h"

#include <utility>

#include <fmt/format.h>

#include "tools/terminal/signals.h"

namespace slipstream::tools {

TextStream::TextStream(TextOutput& output, Console& console)
    : output_(output),
      console_(console),
      on_terminal_(output.on_terminal()),
      beside_text_(output.is_stdout() ? console.shares_output() : on_terminal_),
      rate_(console, beside_text_ && (!output.is_stdout() || console.shares_terminal()) ? RatePlace::BesideText
                                                                                        : RatePlace::OwnLine),
      prefill_(console, "reading the prompt") {}

void TextStream::write_thought(std::string_view text) {
    in_thought_ = true;
    show_thought(text);
}

void TextStream::show_thought(std::string_view text) {
    prefill_.clear();
    if (on_terminal_) {
        const bool dims = console_.shares_terminal();  // control sequences go to stderr, so they dim the text only if
                                                       // both go to one terminal
        rate_.before_text();
        if (dims) console_.draw({ControlKind::Dim});
        const std::string_view shown = output_.write(text);
        if (dims) console_.draw({ControlKind::PlainColor});
        rate_.after_text(shown);
        if (output_.closed()) cancel_flag().store(true);
    } else if (!console_.quiet()) {
        rate_.clear();
        console_.draw({ControlKind::Dim, text, ControlKind::PlainColor});
    }
}

// Ends a thought by newlines. They also bring out its end, which is held back for wrapping, while it is still dimmed.
void TextStream::end_thought() {
    if (!std::exchange(in_thought_, false)) return;
    show_thought(on_terminal_ ? "\n\n" : "\n");
}

void TextStream::write(std::string_view text) {
    end_thought();
    prefill_.clear();
    rate_.before_text();
    rate_.after_text(output_.write(text));
    if (output_.closed()) cancel_flag().store(true);
    print_note();
}

void TextStream::note(std::string message) {
    note_ = std::move(message);
    print_note();
}

void TextStream::print_note() {
    if (note_.empty() || (beside_text_ && !finished_ && output_.last_byte() != '\n')) return;
    prefill_.clear();
    rate_.clear();
    console_.note(std::exchange(note_, {}));
}

void TextStream::on_prefill(std::int64_t done, std::int64_t total) {
    if (beside_text_ && output_.last_byte() != '\n') return;  // the bar would overwrite the line that shows the prompt
    prefill_.update(static_cast<double>(done), static_cast<double>(total), fmt::format("{} of {} tokens", done, total));
}

void TextStream::on_tokens(std::int64_t n) {
    prefill_.clear();
    rate_.show(n);
}

void TextStream::finish() {
    end_thought();
    prefill_.clear();
    rate_.clear();
    output_.write_rest();
    finished_ = true;
    if (output_.last_byte() != '\n') {
        if (on_terminal_) {
            output_.write("\n");
        } else if (beside_text_) {
            console_.end_line();
        }
    }
    print_note();
}

TextStream::~TextStream() {
    if (!finished_ && beside_text_ && output_.last_byte() != '\n') console_.draw("\n");
}

}  // namespace slipstream::tools
