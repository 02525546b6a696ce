// What Console::draw() writes: text, and control sequences of our own. A sequence is named here and spelt in
// console.cpp alone, so no text from outside can become one: on a terminal text is escaped, whoever passes it.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

namespace slipstream::tools {

enum class ControlKind : std::uint8_t {
    Dim,           // until PlainColor
    Red,           // until PlainColor
    PlainColor,    //
    LineStart,     // moves the cursor to column 0
    Up,            // moves the cursor by `count` rows
    Left,          // moves the cursor by `count` columns
    EraseLineEnd,  // from the cursor to the end of the line
    EraseBelow,    // from the cursor to the end of the screen
    PasteMarks,    // the terminal encloses pasted text in ESC [200~ and ESC [201~
    NoPasteMarks,  //
};

struct TerminalControl {
    constexpr TerminalControl(ControlKind the_kind, int the_count = 1)  // NOLINT(google-explicit-constructor)
        : kind(the_kind), count(the_count) {}
    ControlKind kind;
    int count;  // of Up and Left
};

using DrawnPart = std::variant<std::string_view, TerminalControl>;

}  // namespace slipstream::tools
