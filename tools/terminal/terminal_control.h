// The arguments of Console::draw(): text, and control sequences of this program. Control sequences are named here, and
// only console.cpp contains their bytes. On a terminal all text is escaped, so text from outside cannot become a
// control sequence.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

namespace slipstream::tools {

/// The control sequences that this program sends to a terminal.
enum class ControlKind : std::uint8_t {
    Dim,           // dims the text until PlainColor
    Red,           // colours the text red until PlainColor
    PlainColor,    // ends Dim and Red
    LineStart,     // moves the cursor to column 0
    Up,            // moves the cursor up by `count` rows
    Left,          // moves the cursor left by `count` columns
    EraseLineEnd,  // erases from the cursor to the end of the line
    EraseBelow,    // erases from the cursor to the end of the screen
    PasteMarks,    // makes the terminal enclose pasted text in ESC [200~ and ESC [201~
    NoPasteMarks,  // ends PasteMarks
};

/// One control sequence for a terminal.
struct TerminalControl {
    constexpr TerminalControl(ControlKind the_kind, int the_count = 1)  // NOLINT(google-explicit-constructor)
        : kind(the_kind), count(the_count) {}
    ControlKind kind;
    int count;  // rows of Up, columns of Left; ignored for other kinds
};

/// Text in UTF-8, which the caller must keep until Console::draw() returns, or a control sequence.
using DrawnPart = std::variant<std::string_view, TerminalControl>;

}  // namespace slipstream::tools
