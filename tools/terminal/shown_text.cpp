#include "tools/terminal/shown_text.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "runtime/text/utf8.h"

namespace slipstream::tools {

namespace {

constexpr char32_t kIdeographicSpace = 0x3000;
constexpr char32_t kEmojiStyle = 0xfe0f;  // variation selector: the character before it is drawn as an emoji, 2 cells
constexpr int kTabColumns = 8;            // columns from one tab stop of a terminal to the next
// Most bytes of a word that are held back, per column of the line. Cells alone do not limit them: combining marks take
// no cells, and a word may have any number of combining marks.
constexpr std::size_t kHeldBytesPerColumn = 32;

bool is_escaped(char32_t code) {
    return code != U'\n' && code != U'\t' && is_control(code);
}

bool is_blank(char32_t code) {
    return code == U' ' || code == U'\t' || code == kIdeographicSpace;
}

}  // namespace

std::string ShownText::take(std::string_view text) {
    std::string shown = escaped(text);
    if (columns_ <= 0) return shown;
    std::string out;
    place(shown, out);
    return out;
}

std::string ShownText::rest() {
    std::string text;
    for (const char byte : std::exchange(cut_, {}))
        fmt::format_to(std::back_inserter(text), "\\x{:02X}", static_cast<unsigned char>(byte));
    if (columns_ <= 0) return text;
    std::string out;
    place(text, out);
    place_word(out);
    place_blanks(out, 0);
    return out;
}

std::string ShownText::escaped(std::string_view text) {
    cut_ += text;
    std::string out;
    std::size_t at = 0;
    while (at < cut_.size()) {
        const std::string_view rest = std::string_view(cut_).substr(at);
        const Utf8Step step = next_utf8(rest);
        if (step.kind == Utf8Kind::Unfinished) break;
        const std::string_view character = rest.substr(0, step.length);
        if (step.kind == Utf8Kind::Complete && !is_escaped(code_point(character))) {
            out += character;
        } else {
            for (const char byte : character)
                fmt::format_to(std::back_inserter(out), "\\x{:02X}", static_cast<unsigned char>(byte));
        }
        at += step.length;
    }
    cut_.erase(0, at);
    return out;
}

// Wraps `text`, which must consist of whole code points, and appends to `out` the part that need not be held back.
void ShownText::place(std::string_view text, std::string& out) {
    while (!text.empty()) {
        const std::string_view character = text.substr(0, next_utf8(text).length);
        const char32_t code = code_point(character);
        const bool begins_character = borders_.begins_character(code);
        if (code == U'\n') {
            end_line(out);
        } else if (is_blank(code)) {
            place_word(out);
            blanks_ += character;
        } else {
            add_to_word(character, code, begins_character, out);
        }
        text.remove_prefix(character.size());
    }
}

void ShownText::add_to_word(std::string_view text, char32_t code, bool begins_character, std::string& out) {
    const bool continues = is_long_word_ || !word_.empty();
    if (begins_character || !continues) {
        if (continues && may_break_between(first_code_, last_code_, code)) place_word(out);
        if (is_long_word_) place_part(out);
        character_begin_ = word_.size();
        character_cells_ = 0;
        first_code_ = code;
    }
    const int cells = code == kEmojiStyle && character_cells_ == 1 ? 1 : cells_of(code);
    word_ += text;
    word_cells_ += cells;
    character_cells_ += cells;
    last_code_ = code;
    const std::size_t most_bytes = kHeldBytesPerColumn * static_cast<std::size_t>(columns_);
    if (word_cells_ > columns_ || word_.size() > most_bytes) begin_long_word(out);
}

// Appends as many of the held blanks as leave room for `room_after` cells in the line, and drops the others, which
// would be invisible at the end of the line.
void ShownText::place_blanks(std::string& out, int room_after) {
    std::string_view blanks = blanks_;
    while (!blanks.empty()) {
        const std::size_t length = next_utf8(blanks).length;
        const int cells = blanks[0] == '\t' ? kTabColumns - column() % kTabColumns : length > 1 ? 2 : 1;
        if (column() + cells + room_after > columns_) break;
        out += blanks.substr(0, length);
        line_cells_ += cells;
        blanks.remove_prefix(length);
    }
    blanks_.clear();
}

// Appends the held word: after the held blanks if both fit, else on the next line without the blanks. Appends the held
// end of a long word instead if there is one.
void ShownText::place_word(std::string& out) {
    if (std::exchange(is_long_word_, false)) return place_part(out);
    if (word_.empty()) return;
    const std::size_t begin = out.size();
    const std::size_t n_blanks = blanks_.size();
    const bool line_is_empty = line_cells_ == 0;
    place_blanks(out, word_cells_);
    const bool fits = out.size() - begin == n_blanks && column() + word_cells_ <= columns_;
    if (!fits && !line_is_empty) {
        out.resize(begin);
        out += '\n';
        line_cells_ = 0;
    }
    out += word_;
    line_cells_ += word_cells_;
    word_.clear();
    word_cells_ = 0;
}

// Writes the beginning of a word that is longer than a line: all but the last character, which may still grow, or all
// of the word if it is a single character. Call again for each part by which the word grows.
void ShownText::begin_long_word(std::string& out) {
    if (is_long_word_) return place_part(out);
    std::string last;
    if (character_begin_ > 0) {
        last = word_.substr(character_begin_);
        word_.resize(character_begin_);
        word_cells_ -= character_cells_;
    } else {
        character_cells_ = 0;
    }
    place_word(out);
    is_long_word_ = true;
    word_ = std::move(last);
    word_cells_ = character_cells_;
    character_begin_ = 0;
}

// Appends a character of a long word. The terminal breaks a long word, but it would also break within a character of
// several code points; such a character goes to the next line if it does not fit.
void ShownText::place_part(std::string& out) {
    if (word_cells_ > 2 && column() + word_cells_ > columns_) {
        out += '\n';
        line_cells_ = 0;
    }
    if (word_cells_ == 2 && column() == columns_ - 1) ++line_cells_;  // the terminal leaves the last column empty
    line_cells_ += word_cells_;
    out += word_;
    word_.clear();
    word_cells_ = 0;
}

void ShownText::end_line(std::string& out) {
    place_word(out);
    place_blanks(out, 0);
    out += '\n';
    line_cells_ = 0;
}

int ShownText::column() const {
    return line_cells_ == 0 ? 0 : (line_cells_ - 1) % columns_ + 1;
}

std::string shown_text(std::string_view text) {
    ShownText shown;
    std::string result = shown.take(text);
    return result + shown.rest();
}

}  // namespace slipstream::tools
