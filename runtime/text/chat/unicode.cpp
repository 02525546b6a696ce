#include "runtime/text/chat/unicode.h"

#include <algorithm>
#include <span>

#include "runtime/text/chat/unicode_tables.h"
#include "runtime/text/utf8.h"

namespace slipstream::jinja {

namespace {

constexpr char32_t kBroken = 0xfffd;
constexpr char32_t kFinalSigma = 0x3c2;
constexpr char32_t kSmallSigma = 0x3c3;
constexpr char32_t kCapitalSigma = 0x3a3;

template <typename Run>
const Run* run_of(std::span<const Run> runs, char32_t code) {
    auto after =
        std::upper_bound(runs.begin(), runs.end(), code, [](char32_t c, const Run& run) { return c < run.first; });
    if (after == runs.begin()) return nullptr;
    const Run& run = *--after;
    return code <= run.last && (code - run.first) % run.step == 0 ? &run : nullptr;
}

bool among(std::span<const tables::Run> runs, char32_t code) {
    return run_of(runs, code) != nullptr;
}

void append_mapped(std::string& out, const Char& c, std::span<const tables::CaseRun> runs,
                   std::span<const tables::SpecialCase> special) {
    if (const auto* run = run_of(runs, c.code)) {
        append_utf8(out, static_cast<char32_t>(static_cast<std::int32_t>(c.code) + run->delta));
        return;
    }
    const auto found =
        std::lower_bound(special.begin(), special.end(), c.code,
                         [](const tables::SpecialCase& entry, char32_t code) { return entry.from < code; });
    if (found == special.end() || found->from != c.code) {
        out.append(c.bytes);
        return;
    }
    for (const char32_t code : found->to) append_utf8(out, code);
}

void append_upper(std::string& out, const Char& c) {
    append_mapped(out, c, tables::kToUpper, tables::kToUpperSpecial);
}
void append_title(std::string& out, const Char& c) {
    append_mapped(out, c, tables::kToTitle, tables::kToTitleSpecial);
}

// Whether a capital sigma between these stands at the end of a word (the Unicode Standard, section 3.13).
bool ends_word(std::string_view before, std::string_view after) {
    while (!before.empty() && among(tables::kCaseIgnorable, last_char(before).code))
        before.remove_suffix(last_char(before).bytes.size());
    if (before.empty() || !among(tables::kCased, last_char(before).code)) return false;
    while (!after.empty() && among(tables::kCaseIgnorable, first_char(after).code)) take_char(after);
    return after.empty() || !among(tables::kCased, first_char(after).code);
}

// `c` stands in `text` right before `rest`.
void append_lower(std::string& out, const Char& c, std::string_view text, std::string_view rest) {
    if (c.code == kCapitalSigma) {
        const auto before = text.substr(0, text.size() - rest.size() - c.bytes.size());
        append_utf8(out, ends_word(before, rest) ? kFinalSigma : kSmallSigma);
    } else {
        append_mapped(out, c, tables::kToLower, tables::kToLowerSpecial);
    }
}

bool is_cased(char32_t code) {
    return is_lower(code) || is_upper(code) || is_title(code);
}

bool holds(std::string_view chars, std::string_view c) {
    while (!chars.empty())
        if (take_char(chars).bytes == c) return true;
    return false;
}

}  // namespace

Char first_char(std::string_view text) {
    const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    if (byte(0) < 0x80) return {text.substr(0, 1), byte(0)};
    const Utf8Step step = next_utf8(text);
    const auto bytes = text.substr(0, step.length);
    if (step.kind != Utf8Kind::Complete) return {bytes, kBroken};
    char32_t code = byte(0) & (0x7fU >> step.length);
    for (std::size_t i = 1; i < step.length; ++i) code = code << 6U | (byte(i) & 0x3fU);
    return {bytes, code};
}

Char last_char(std::string_view text) {
    // No character is longer than four bytes: the last one is among what the last bytes begin.
    for (std::size_t length = std::min<std::size_t>(4, text.size()); length > 1; --length) {
        const Char c = first_char(text.substr(text.size() - length));
        if (c.bytes.size() == length) return c;
    }
    return first_char(text.substr(text.size() - 1));
}

Char take_char(std::string_view& text) {
    const Char c = first_char(text);
    text.remove_prefix(c.bytes.size());
    return c;
}

std::int64_t count_chars(std::string_view text) {
    const bool ascii =
        std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
    if (ascii) return static_cast<std::int64_t>(text.size());
    std::int64_t n = 0;
    for (; !text.empty(); ++n) take_char(text);
    return n;
}

std::size_t byte_offset(std::string_view text, std::int64_t index) {
    std::string_view rest = text;
    for (; index > 0 && !rest.empty(); --index) take_char(rest);
    return text.size() - rest.size();
}

void append_utf8(std::string& out, char32_t code) {
    const auto push = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (code < 0x80) {
        push(code);
    } else if (code < 0x800) {
        push(0xc0U | code >> 6U);
        push(0x80U | (code & 0x3fU));
    } else if (code < 0x10000) {
        push(0xe0U | code >> 12U);
        push(0x80U | (code >> 6U & 0x3fU));
        push(0x80U | (code & 0x3fU));
    } else {
        push(0xf0U | code >> 18U);
        push(0x80U | (code >> 12U & 0x3fU));
        push(0x80U | (code >> 6U & 0x3fU));
        push(0x80U | (code & 0x3fU));
    }
}

bool is_space(char32_t code) {
    if (code < 0x80) return (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x20);
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool is_line_break(char32_t code) {
    return (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 ||
           code == 0x2029;
}

bool is_printable(char32_t code) {
    if (code < 0x7f) return code >= 0x20;
    return !among(tables::kUnprintable, code);
}

bool is_alpha(char32_t code) {
    return among(tables::kAlpha, code);
}
bool is_decimal(char32_t code) {
    return among(tables::kDecimal, code);
}
bool is_digit(char32_t code) {
    return is_decimal(code) || among(tables::kDigit, code);
}
bool is_numeric(char32_t code) {
    return is_digit(code) || among(tables::kNumeric, code);
}
bool is_lower(char32_t code) {
    return among(tables::kLower, code);
}
bool is_upper(char32_t code) {
    return among(tables::kUpper, code);
}
bool is_title(char32_t code) {
    return among(tables::kTitle, code);
}
bool is_word(char32_t code) {
    return code == '_' || is_alpha(code) || is_numeric(code);
}
bool is_identifier_start(char32_t code) {
    return is_alpha(code) ? !among(tables::kStartLetterNot, code) : among(tables::kStartOther, code);
}

bool is_identifier_part(char32_t code) {
    return is_alpha(code) ? !among(tables::kPartLetterNot, code) : among(tables::kPartOther, code);
}

int decimal_value(char32_t code) {
    if (code >= '0' && code <= '9') return static_cast<int>(code - '0');
    const tables::Run* run = run_of(tables::kDecimal, code);
    // The digits of a script stand together in tens.
    return run == nullptr ? -1 : static_cast<int>((code - run->first) % 10);
}

std::string to_upper(std::string_view text) {
    std::string out;
    while (!text.empty()) append_upper(out, take_char(text));
    return out;
}

std::string to_lower(std::string_view text) {
    std::string out;
    for (std::string_view rest = text; !rest.empty();) {
        const Char c = take_char(rest);
        append_lower(out, c, text, rest);
    }
    return out;
}

std::string to_title(std::string_view text) {
    std::string out;
    bool in_word = false;
    for (std::string_view rest = text; !rest.empty();) {
        const Char c = take_char(rest);
        if (in_word) {
            append_lower(out, c, text, rest);
        } else {
            append_title(out, c);
        }
        in_word = is_cased(c.code);
    }
    return out;
}

std::string capitalize(std::string_view text) {
    std::string out;
    for (std::string_view rest = text; !rest.empty();) {
        const bool first = rest.size() == text.size();
        const Char c = take_char(rest);
        if (first) {
            append_title(out, c);
        } else {
            append_lower(out, c, text, rest);
        }
    }
    return out;
}

std::string swap_case(std::string_view text) {
    std::string out;
    for (std::string_view rest = text; !rest.empty();) {
        const Char c = take_char(rest);
        if (is_upper(c.code)) {
            append_lower(out, c, text, rest);
        } else if (is_lower(c.code)) {
            append_upper(out, c);
        } else {
            out.append(c.bytes);
        }
    }
    return out;
}

std::string_view strip_left(std::string_view text) {
    while (!text.empty() && is_space(first_char(text).code)) take_char(text);
    return text;
}

std::string_view strip_right(std::string_view text) {
    while (!text.empty()) {
        const Char c = last_char(text);
        if (!is_space(c.code)) break;
        text.remove_suffix(c.bytes.size());
    }
    return text;
}

std::string_view strip(std::string_view text) {
    return strip_right(strip_left(text));
}

std::string_view strip_left(std::string_view text, std::string_view chars) {
    while (!text.empty() && holds(chars, first_char(text).bytes)) take_char(text);
    return text;
}

std::string_view strip_right(std::string_view text, std::string_view chars) {
    while (!text.empty()) {
        const Char c = last_char(text);
        if (!holds(chars, c.bytes)) break;
        text.remove_suffix(c.bytes.size());
    }
    return text;
}

}  // namespace slipstream::jinja
