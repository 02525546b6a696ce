// Lines typed by a person: libedit's editing and history (the user's .editrc counts), at a terminal on stdin, drawn on
// stderr. What is pasted with newlines is one piece of one line, whatever its length: the terminal brackets it
// (bracketed paste), a mark stands for it while the line is edited, and the text itself is in the line that comes out.
//
// Characters are read here and not by libedit, so that a signal ends the wait, a window of another size is drawn anew,
// and half a character is never looked at.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tools/chat/chat_input.h"
#include "tools/machine/environment.h"
#include "tools/terminal/console.h"

namespace slipstream::tools {

class LineEditor final : public ChatInput {
public:
    /// stdin is a terminal. The terminal's own state is touched only while a line is waited for. `console` outlives
    /// this. Throws IoError where libedit cannot use the terminal.
    LineEditor(const EnvironmentReader& environment, Console& console);
    ~LineEditor() override;
    LineEditor(const LineEditor&) = delete;
    LineEditor& operator=(const LineEditor&) = delete;

    [[nodiscard]] ChatLine next_line(std::string_view prompt) override;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace slipstream::tools
