// Reads lines that the user types at a terminal on stdin, with libedit's editing and history (the user's .editrc is
// read). The line is drawn on stderr. The terminal marks pasted text (bracketed paste). Pasted text with newlines
// becomes part of one line: a mark such as "[paste 1: 12 lines]" represents it while the line is edited, and the
// returned line contains the text.
//
// This class reads the characters, not libedit, so that a signal ends the wait, a resized window is redrawn, and an
// incomplete UTF-8 sequence is never passed on.
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
    /// stdin must be a terminal, and `console` must outlive this object. The terminal's mode is changed only during
    /// next_line(). Throws IoError if libedit cannot use the terminal.
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
