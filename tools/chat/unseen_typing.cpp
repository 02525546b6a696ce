#include "tools/chat/unseen_typing.h"

#include <unistd.h>

#include "tools/terminal/signals.h"

namespace slipstream::tools {

UnseenTyping::UnseenTyping(InputMode mode)
    : changed_(mode == InputMode::Interactive && tcgetattr(STDIN_FILENO, &before_) == 0) {
    if (!changed_) return;
    termios unseen = before_;
    unseen.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    // The line editor must see CR, to distinguish CR LF from two line ends.
    unseen.c_iflag &= ~static_cast<tcflag_t>(ICRNL);
    restore_terminal_when_leaving(before_, unseen);
    changed_ = tcsetattr(STDIN_FILENO, TCSANOW, &unseen) == 0;
}

UnseenTyping::~UnseenTyping() {
    if (changed_) static_cast<void>(tcsetattr(STDIN_FILENO, TCSANOW, &before_));
    terminal_is_restored();
}

}  // namespace slipstream::tools
