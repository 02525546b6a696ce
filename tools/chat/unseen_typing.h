// Hides what is typed while a chat loads its model or writes an answer.
#pragma once

#include <termios.h>

#include "tools/chat/chat_loop.h"

namespace slipstream::tools {

/// Switches the terminal's echo off during its life; does nothing if `mode` is not Interactive or stdin is no terminal.
/// What is typed meanwhile goes into the next line. A signal that ends or stops the program restores the terminal. Only
/// one object may exist at a time.
class UnseenTyping {
public:
    explicit UnseenTyping(InputMode mode);
    UnseenTyping(const UnseenTyping&) = delete;
    UnseenTyping& operator=(const UnseenTyping&) = delete;
    ~UnseenTyping();

private:
    termios before_{};
    bool changed_;
};

}  // namespace slipstream::tools
