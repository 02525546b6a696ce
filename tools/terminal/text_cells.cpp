#include "tools/terminal/text_cells.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "runtime/text/utf8.h"

namespace slipstream::tools {

namespace {

constexpr char32_t kEmojiStyle = 0xfe0f;  // variation selector: the character before it is drawn as an emoji, 2 cells
constexpr char32_t kZeroWidthSpace = 0x200b;

struct CodeRange {
    char32_t first, last;
};

template <std::size_t N>
bool is_in(const std::array<CodeRange, N>& ranges, char32_t code) {
    return std::ranges::any_of(ranges,
                               [&](const CodeRange& range) { return code >= range.first && code <= range.last; });
}

// Hangul. Most of its characters are wide, but Korean separates words by blanks, so lines do not break within its
// words.
constexpr std::array<CodeRange, 5> kHangul{
    {{0x1100, 0x11ff}, {0x3130, 0x318f}, {0xa960, 0xa97f}, {0xac00, 0xd7ff}, {0xffa0, 0xffdc}}};
// Characters of one cell between which a line may break without a blank: Thai, Lao, Myanmar and Khmer (class SA of
// UAX #14), and half-width katakana.
constexpr std::array<CodeRange, 5> kNarrowWithoutBlanks{
    {{0x0e00, 0x0e7f}, {0x0e80, 0x0eff}, {0x1000, 0x109f}, {0x1780, 0x17ff}, {0xff61, 0xff9f}}};
// Vowels of Thai and Lao that are written before their consonant, so no line breaks after them.
constexpr std::array<CodeRange, 2> kLeadingVowels{{{0x0e40, 0x0e44}, {0x0ec0, 0x0ec4}}};
// Letters before which no line breaks: vowels and signs of Thai and Lao that are written after their consonant, and
// small kana.
constexpr std::array<CodeRange, 28> kTrailingLetters{
    {{0x0e2f, 0x0e30}, {0x0e32, 0x0e33}, {0x0e45, 0x0e46}, {0x0eaf, 0x0eb0}, {0x0eb2, 0x0eb3}, {0x0ebd, 0x0ebd},
     {0x3041, 0x3041}, {0x3043, 0x3043}, {0x3045, 0x3045}, {0x3047, 0x3047}, {0x3049, 0x3049}, {0x3063, 0x3063},
     {0x3083, 0x3083}, {0x3085, 0x3085}, {0x3087, 0x3087}, {0x308e, 0x308e}, {0x30a1, 0x30a1}, {0x30a3, 0x30a3},
     {0x30a5, 0x30a5}, {0x30a7, 0x30a7}, {0x30a9, 0x30a9}, {0x30c3, 0x30c3}, {0x30e3, 0x30e3}, {0x30e5, 0x30e5},
     {0x30e7, 0x30e7}, {0x30ee, 0x30ee}, {0x31f0, 0x31ff}, {0xff67, 0xff6f}}};

bool is_virama(char32_t code) {
    return code == 0x17d2 || code == 0x1039;  // virama of Khmer, of Myanmar: the next consonant is written below it
}

bool breaks_without_blank(char32_t code) {
    return (cells_of(code) == 2 && !is_in(kHangul, code)) || is_in(kNarrowWithoutBlanks, code);
}

bool stays_with_next(char32_t code) {
    const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
    return category == UTF8PROC_CATEGORY_PS || category == UTF8PROC_CATEGORY_PI || code == U'"' || code == U'\'' ||
           is_in(kLeadingVowels, code);
}

bool stays_with_previous(char32_t code) {
    switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
        case UTF8PROC_CATEGORY_PE:
        case UTF8PROC_CATEGORY_PF:
        case UTF8PROC_CATEGORY_PO:
        case UTF8PROC_CATEGORY_PD:
        case UTF8PROC_CATEGORY_LM:  // the marks of a long vowel and of repetition
            return true;
        default:
            return is_in(kTrailingLetters, code);
    }
}

}  // namespace

int cells_of(char32_t code) {
    return utf8proc_charwidth(static_cast<utf8proc_int32_t>(code));
}

int cells_of(std::string_view text) {
    int cells = 0;
    char32_t last = 0;
    while (!text.empty()) {
        const Utf8Step step = next_utf8(text);
        const bool complete = step.kind == Utf8Kind::Complete;
        const char32_t code = complete ? code_point(text) : U'\ufffd';
        if (code == kEmojiStyle && cells_of(last) == 1) ++cells;
        cells += complete ? cells_of(code) : static_cast<int>(step.length);
        last = code;
        text.remove_prefix(step.length);
    }
    return cells;
}

bool CharacterBorders::begins_character(char32_t code) {
    const bool begins = utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last_),
                                                         static_cast<utf8proc_int32_t>(code), &state_);
    last_ = code;
    return begins;
}

bool may_break_between(char32_t before, char32_t before_last, char32_t after) {
    if (before == kZeroWidthSpace) return true;
    if (!breaks_without_blank(before) && !breaks_without_blank(after)) return false;
    return !stays_with_next(before) && !is_virama(before_last) && !stays_with_previous(after);
}

}  // namespace slipstream::tools
