#include "runtime/text/chat/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

namespace slipstream::jinja {

namespace {

constexpr char32_t kBroken = 0xfffd;
constexpr char32_t kCapitalSigma = 0x3a3;
constexpr char32_t kFinalSigma = 0x3c2;

int category(char32_t code) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

bool is_cased(char32_t code) {
    const int kind = category(code);
    return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT;
}

// What the search for a word's end passes over (Case_Ignorable): marks, modifiers, formats, and some punctuation.
bool is_case_ignorable(char32_t code) {
    const int kind = category(code);
    return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME || kind == UTF8PROC_CATEGORY_CF ||
           kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_SK || code == '\'' || code == '.' || code == ':' ||
           code == 0xb7 || code == 0x2019 || code == 0x2018;
}

// Whether a capital sigma between these stands at the end of a word (the Unicode Standard, section 3.13).
bool ends_word(std::string_view before, std::string_view after) {
    while (!before.empty() && is_case_ignorable(last_char(before).code))
        before.remove_suffix(last_char(before).bytes.size());
    if (before.empty() || !is_cased(last_char(before).code)) return false;
    while (!after.empty() && is_case_ignorable(first_char(after).code)) take_char(after);
    return after.empty() || !is_cased(first_char(after).code);
}

// Letters that become several (SpecialCasing.txt of the Unicode Standard, without the Greek and Armenian ones).
struct Several {
    char32_t from;
    std::string_view upper, title;
};
constexpr std::array<Several, 9> kSeveral = {{{0xdf, "SS", "Ss"},
                                              {0x149, "\xca\xbcN", "\xca\xbcN"},
                                              {0xfb00, "FF", "Ff"},
                                              {0xfb01, "FI", "Fi"},
                                              {0xfb02, "FL", "Fl"},
                                              {0xfb03, "FFI", "Ffi"},
                                              {0xfb04, "FFL", "Ffl"},
                                              {0xfb05, "ST", "St"},
                                              {0xfb06, "ST", "St"}}};

// What `c` becomes, appended to `out`; it stands in `text` right before `rest`.
void map_char(std::string& out, const Char& c, std::string_view text, std::string_view rest, LetterCase to) {
    const auto code = static_cast<utf8proc_int32_t>(c.code);
    if (to == LetterCase::Lower) {
        if (c.code == 0x130) {
            out += "i\xcc\x87";
        } else if (c.code == kCapitalSigma &&
                   ends_word(text.substr(0, text.size() - rest.size() - c.bytes.size()), rest)) {
            append_utf8(kFinalSigma, out);
        } else {
            append_utf8(static_cast<char32_t>(utf8proc_tolower(code)), out);
        }
        return;
    }
    for (const Several& entry : kSeveral)
        if (entry.from == c.code) {
            out += to == LetterCase::Upper ? entry.upper : entry.title;
            return;
        }
    append_utf8(static_cast<char32_t>(to == LetterCase::Upper ? utf8proc_toupper(code) : utf8proc_totitle(code)), out);
}

bool holds(std::string_view chars, std::string_view c) {
    while (!chars.empty())
        if (take_char(chars).bytes == c) return true;
    return false;
}

template <typename Goes>
TextSpan strip_while(std::string_view text, Ends ends, Goes goes) {
    TextSpan span{0, text.size()};
    const auto rest = [&] { return text.substr(span.begin, span.end - span.begin); };
    if (ends != Ends::Right)
        while (span.begin < span.end && goes(first_char(rest()))) span.begin += first_char(rest()).bytes.size();
    if (ends != Ends::Left)
        while (span.begin < span.end && goes(last_char(rest()))) span.end -= last_char(rest()).bytes.size();
    return span;
}

}  // namespace

Char first_char(std::string_view text) {
    if (static_cast<unsigned char>(text[0]) < 0x80) return {text.substr(0, 1), static_cast<unsigned char>(text[0])};
    const Utf8Step step = next_utf8(text);
    const std::string_view bytes = text.substr(0, step.length);
    return {bytes, step.kind == Utf8Kind::Complete ? code_point(bytes) : kBroken};
}

Char last_char(std::string_view text) {
    // Back to a byte that may begin a character, then forwards to the last one.
    std::size_t begin = text.size() - 1;
    while (begin > 0 && text.size() - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xc0U) == 0x80) --begin;
    std::string_view rest = text.substr(begin);
    while (first_char(rest).bytes.size() < rest.size()) rest.remove_prefix(first_char(rest).bytes.size());
    return first_char(rest);
}

Char take_char(std::string_view& text) {
    const Char c = first_char(text);
    text.remove_prefix(c.bytes.size());
    return c;
}

std::int64_t count_chars(std::string_view text) {
    std::int64_t n = 0;
    for (; !text.empty(); ++n) take_char(text);
    return n;
}

std::size_t byte_offset(std::string_view text, std::int64_t index) {
    std::string_view rest = text;
    for (; index > 0 && !rest.empty(); --index) take_char(rest);
    return text.size() - rest.size();
}

bool is_space(char32_t code) {
    return is_white_space(code) || (code >= 0x1c && code <= 0x1f);
}

bool is_line_break(char32_t code) {
    return (code >= 0xa && code <= 0xd) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 ||
           code == 0x2029;
}

bool is_printable(char32_t code) {
    if (code < 0x7f) return code >= 0x20;
    switch (category(code)) {
        case UTF8PROC_CATEGORY_CN:
        case UTF8PROC_CATEGORY_CC:
        case UTF8PROC_CATEGORY_CF:
        case UTF8PROC_CATEGORY_CS:
        case UTF8PROC_CATEGORY_CO:
        case UTF8PROC_CATEGORY_ZS:
        case UTF8PROC_CATEGORY_ZL:
        case UTF8PROC_CATEGORY_ZP:
            return false;
        default:
            return true;
    }
}

bool is_alpha(char32_t code) {
    const int kind = category(code);
    return is_cased(code) || kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_LO;
}
bool is_digit(char32_t code) {
    return category(code) == UTF8PROC_CATEGORY_ND;
}
bool is_lower(char32_t code) {
    return category(code) == UTF8PROC_CATEGORY_LL;
}
bool is_upper(char32_t code) {
    return category(code) == UTF8PROC_CATEGORY_LU;
}
bool is_identifier_start(char32_t code) {
    if (code < 0x80) return (code | 0x20U) - 'a' < 26 || code == '_';
    return is_alpha(code) || category(code) == UTF8PROC_CATEGORY_NL;
}
bool is_identifier_part(char32_t code) {
    if (code < 0x80) return is_identifier_start(code) || code - '0' < 10;
    const int kind = category(code);
    return is_identifier_start(code) || is_digit(code) || kind == UTF8PROC_CATEGORY_MN ||
           kind == UTF8PROC_CATEGORY_MC || kind == UTF8PROC_CATEGORY_PC;
}

void append_mapped(TextBuilder& out, const MarkedText& text, TextSpan part, LetterCase to) {
    std::string_view rest = std::string_view(text.bytes).substr(0, part.end).substr(part.begin);
    std::string mapped;
    while (!rest.empty()) {
        const auto at = static_cast<std::size_t>(rest.data() - text.bytes.data());
        const Char c = take_char(rest);
        mapped.clear();
        if (c.is_broken())
            mapped = c.bytes;
        else
            map_char(mapped, c, text.bytes, std::string_view(text.bytes).substr(at + c.bytes.size()), to);
        out.append(mapped, text.is_said_at(at) ? Origin::Said : Origin::Template);
    }
}

TextSpan stripped(std::string_view text, Ends ends) {
    return strip_while(text, ends, [](const Char& c) { return is_space(c.code); });
}

TextSpan stripped(std::string_view text, Ends ends, std::string_view chars) {
    return strip_while(text, ends, [chars](const Char& c) { return holds(chars, c.bytes); });
}

}  // namespace slipstream::jinja
