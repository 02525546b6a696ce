#include "tools/terminal/shown_text.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "runtime/text/utf8.h"
#include "tools/terminal/text_parts.h"

namespace slipstream::tools {

namespace {

// C1 controls (C2 80 to C2 9F) move terminals as well as C0 ones do.
bool is_control(std::string_view character) {
    const auto first = static_cast<unsigned char>(character[0]);
    if (first == '\n' || first == '\t') return false;
    return first < 0x20 || first == 0x7F ||
           (first == 0xC2 && character.size() == 2 && static_cast<unsigned char>(character[1]) < 0xA0);
}

int width_of(std::string_view text) {
    return static_cast<int>(letters_of(text));
}

}  // namespace

std::string ShownText::take(std::string_view piece) {
    const std::string text = escaped(piece);
    return columns_ > 0 ? placed(text) : text;
}

std::string ShownText::rest() {
    std::string text;
    for (const char byte : std::exchange(cut_, {}))
        fmt::format_to(std::back_inserter(text), "\\x{:02X}", static_cast<unsigned char>(byte));
    if (columns_ == 0) return text;
    std::string out = placed(text);
    place_word(out);
    return out + std::exchange(blanks_, {});
}

std::string ShownText::escaped(std::string_view piece) {
    cut_ += piece;
    std::string out;
    std::size_t at = 0;
    while (at < cut_.size()) {
        const Utf8Step step = next_utf8(std::string_view(cut_).substr(at));
        if (step.kind == Utf8Kind::Unfinished) break;
        const std::size_t length = step.length;
        const std::string_view character = std::string_view(cut_).substr(at, length);
        if (step.kind == Utf8Kind::Complete && !is_control(character)) {
            out += character;
        } else {
            for (const char byte : character)
                fmt::format_to(std::back_inserter(out), "\\x{:02X}", static_cast<unsigned char>(byte));
        }
        at += length;
    }
    cut_.erase(0, at);
    return out;
}

std::string ShownText::placed(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '\n' || c == ' ' || c == '\t') {
            place_word(out);
            if (c == '\n') {
                out += std::exchange(blanks_, {}) + c;
                column_ = 0;
            } else {
                blanks_ += c;
            }
        } else {
            word_ += c;
        }
    }
    return out;
}

// The word that waits, behind its blanks, or on a line of its own.
void ShownText::place_word(std::string& out) {
    if (word_.empty()) return;
    const int width = width_of(word_);
    const bool fits = column_ == 0 || column_ + width_of(blanks_) + width <= columns_;
    out += fits ? blanks_ : "\n";
    column_ = fits ? column_ + width_of(blanks_) + width : width;
    out += word_;
    if (column_ > columns_) column_ = (column_ - 1) % columns_ + 1;  // the terminal breaks what is longer than a line
    blanks_.clear();
    word_.clear();
}

}  // namespace slipstream::tools
