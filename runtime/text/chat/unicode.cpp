#include "runtime/text/chat/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

namespace slipstream::jinja {

namespace {

constexpr char32_t kCapitalSigma = 0x3a3;

utf8proc_category_t category(char32_t code) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

bool is_cased(char32_t code) {
    return is_lower(code) || is_upper(code) || category(code) == UTF8PROC_CATEGORY_LT;
}

// Letters whose upper case has several characters (SpecialCasing.txt of the Unicode Standard, without the Greek and
// Armenian letters).
struct Several {
    char32_t from;
    std::string_view upper;
};
constexpr std::array<Several, 9> kSeveral = {{{0xdf, "SS"},
                                              {0x149, "\xca\xbcN"},
                                              {0xfb00, "FF"},
                                              {0xfb01, "FI"},
                                              {0xfb02, "FL"},
                                              {0xfb03, "FFI"},
                                              {0xfb04, "FFL"},
                                              {0xfb05, "ST"},
                                              {0xfb06, "ST"}}};

// Appends what `c` becomes in the case `to`. `before` and `after` are the texts around it.
void map_char(std::string& out, const Char& c, std::string_view before, std::string_view after, LetterCase to) {
    const auto code = static_cast<utf8proc_int32_t>(c.code);
    if (to == LetterCase::Lower) {
        // At the end of a word, the small sigma has a form of its own.
        const bool ends_word = c.code == kCapitalSigma && !before.empty() && is_cased(last_char(before).code) &&
                               (after.empty() || !is_cased(first_char(after).code));
        append_utf8(ends_word ? 0x3c2 : static_cast<char32_t>(utf8proc_tolower(code)), out);
        // U+0130 (a capital I with a dot above) is the only character whose lower case is two characters: after the
        // letter, the dot (U+0307) is appended.
        if (c.code == 0x130) append_utf8(0x307, out);
        return;
    }
    const auto* const several = std::ranges::find(kSeveral, c.code, &Several::from);
    if (several == kSeveral.end()) {
        append_utf8(static_cast<char32_t>(to == LetterCase::Upper ? utf8proc_toupper(code) : utf8proc_totitle(code)),
                    out);
        return;
    }
    // In title case, only the first character is a capital; the first one of U+0149 is an apostrophe, so all stay as
    // they are.
    for (std::size_t i = 0; i < several->upper.size(); ++i)
        out += static_cast<char>(several->upper[i] | (to == LetterCase::Title && i > 0 && c.code != 0x149 ? 0x20 : 0));
}

}  // namespace

Char first_char(std::string_view text) {
    if (static_cast<unsigned char>(text[0]) < 0x80) return {text.substr(0, 1), static_cast<unsigned char>(text[0])};
    const Utf8Step step = next_utf8(text);
    const std::string_view bytes = text.substr(0, step.length);
    return {bytes, step.kind == Utf8Kind::Complete ? code_point(bytes) : 0xfffd};
}

Char last_char(std::string_view text) {
    // Steps back to a byte that may begin a character, then forwards to the last character.
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
    const utf8proc_category_t kind = category(code);
    // Unassigned characters are not printable, nor are those of the last categories: Zs, Zl, Zp, Cc, Cf, Cs, Co.
    return kind != UTF8PROC_CATEGORY_CN && kind < UTF8PROC_CATEGORY_ZS;
}

bool is_lower(char32_t code) {
    return category(code) == UTF8PROC_CATEGORY_LL;
}
bool is_upper(char32_t code) {
    return category(code) == UTF8PROC_CATEGORY_LU;
}

void append_mapped(TextBuilder& out, const MarkedText& text, TextSpan part, LetterCase to, std::size_t word_begin) {
    const std::string_view all = text.bytes;
    std::string mapped;
    for (std::size_t at = part.begin; at < part.end;) {
        const Char c = first_char(all.substr(at, part.end - at));
        mapped.clear();
        if (c.is_broken())
            mapped = c.bytes;
        else
            map_char(mapped, c, all.substr(word_begin, at - word_begin), all.substr(at + c.bytes.size()), to);
        out.append(mapped, text.origin_at(at));
        at += c.bytes.size();
    }
}

TextSpan stripped(std::string_view text, Ends ends) {
    return stripped(text, ends, [](const Char& c) { return is_space(c.code); });
}

TextSpan stripped(std::string_view text, Ends ends, const std::function<bool(const Char&)>& goes) {
    TextSpan span{0, text.size()};
    const auto rest = [&] { return text.substr(span.begin, span.end - span.begin); };
    if (ends != Ends::Right)
        while (span.begin < span.end && goes(first_char(rest()))) span.begin += first_char(rest()).bytes.size();
    if (ends != Ends::Left)
        while (span.begin < span.end && goes(last_char(rest()))) span.end -= last_char(rest()).bytes.size();
    return span;
}

}  // namespace slipstream::jinja
