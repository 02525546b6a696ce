#include "runtime/text/tokenizer/pattern_dialect.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"
#include "runtime/text/utf8.h"

namespace slipstream {

namespace {

// Unicode's White_Space, inside of a class, and what is left.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNoSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
// UTS 18's \w less the two joiners, with six signs of Latin-1 that Oniguruma counts in.
constexpr std::string_view kWordOniguruma = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view kWordRust = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d})";

constexpr std::size_t kMaxPatternBytes = 1 << 16;
constexpr std::size_t kMaxDepth = 100;

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::string hex(char32_t point) {
    return fmt::format("\\x{{{:x}}}", static_cast<std::uint32_t>(point));
}

class Translator {
public:
    Translator(std::string_view pattern, PatternDialect dialect, std::string_view name)
        : pattern_(pattern), dialect_(dialect), name_(name) {
        if (pattern.size() > kMaxPatternBytes) refuse(fmt::format("{} bytes", pattern.size()));
        if (valid_utf8_prefix(pattern) != pattern.size()) refuse("bytes that are not UTF-8");
    }

    std::string run() {
        while (!at_end()) item();
        if (!groups_.empty()) refuse("a group that is not closed");
        return std::move(out_);
    }

private:
    [[noreturn]] void refuse(std::string_view what) const {
        throw Unsupported(fmt::format("{}: the pattern '{}' has {}, which this version does not read", name_,
                                      printable(pattern_.substr(0, 200)), what));
    }
    [[nodiscard]] bool at_end() const { return at_ == pattern_.size(); }
    [[nodiscard]] std::string_view rest() const { return pattern_.substr(at_); }
    [[nodiscard]] char peek() const { return at_end() ? '\0' : pattern_[at_]; }
    bool take(std::string_view text) {
        if (!rest().starts_with(text)) return false;
        at_ += text.size();
        return true;
    }
    char32_t take_character() {
        const char32_t point = code_point(rest());
        at_ += next_utf8(rest()).length;
        return point;
    }

    void item();
    void group();
    void repeat();
    void interval();
    void escape();
    void escaped_set(char letter);
    void character_class();
    void class_items(std::string& items, std::size_t depth);
    std::optional<char32_t> class_character(std::string& items);
    std::string property(char letter);
    char32_t escaped_character(char letter);
    char32_t hex_digits(std::size_t n);
    void atom(std::string_view text) {
        atom_begin_ = out_.size();
        out_ += text;
    }
    [[nodiscard]] std::string_view word() const {
        return dialect_ == PatternDialect::Oniguruma ? kWordOniguruma : kWordRust;
    }

    std::string_view pattern_;
    PatternDialect dialect_;
    std::string_view name_;
    std::size_t at_ = 0;
    std::string out_;
    std::optional<std::size_t> atom_begin_;  // in out_: what a quantifier would repeat
    std::vector<std::size_t> groups_;        // where the open ones begin in out_
};

void Translator::item() {
    const char c = peek();
    switch (c) {
        case '(':
            group();
            return;
        case ')':
            if (groups_.empty()) refuse("a ')' too many");
            out_ += ')';
            atom_begin_ = groups_.back();
            groups_.pop_back();
            ++at_;
            return;
        case '|':
            out_ += c;
            atom_begin_.reset();
            ++at_;
            return;
        case '*':
        case '+':
        case '?':
            repeat();
            return;
        case '{':
            interval();
            return;
        case '[':
            character_class();
            return;
        case '\\':
            escape();
            return;
        case '.':
            atom("[^\\x{a}]");
            ++at_;
            return;
        case '^':  // the beginning of any line in Oniguruma, of the text in Rust
        case '$':
            if (dialect_ == PatternDialect::Oniguruma)
                out_ += c == '^' ? "(?m:^)" : "(?m:$)";
            else
                out_ += c == '^' ? "\\A" : "\\z";
            atom_begin_.reset();
            ++at_;
            return;
        default: {
            const char32_t point = take_character();
            const bool plain =
                point < 0x80 && (is_letter(static_cast<char>(point)) || is_digit(static_cast<char>(point)));
            atom(plain ? std::string(1, static_cast<char>(point)) : hex(point));
        }
    }
}

void Translator::group() {
    constexpr std::array<std::string_view, 8> kinds = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};
    if (groups_.size() == kMaxDepth) refuse("groups nested too deeply");
    const std::size_t begin = out_.size();
    if (take("(?i)")) {
        out_ += "(?i)";
        return;
    }
    const auto* const kind =
        std::ranges::find_if(kinds, [this](std::string_view text) { return rest().starts_with(text); });
    if (kind != kinds.end()) {
        at_ += kind->size();
        out_ += *kind;
    } else if (take("(?") || take("(*")) {
        refuse(fmt::format("a group that begins with '{}'", printable(pattern_.substr(at_ - 2, 4))));
    } else {
        take("(");
        out_ += "(?:";  // nothing refers back to it
    }
    groups_.push_back(begin);
    atom_begin_.reset();
}

void Translator::repeat() {
    if (!atom_begin_) refuse("a repetition of nothing");
    out_ += peek();
    ++at_;
    if (peek() == '?' || peek() == '+') {  // lazy, possessive
        out_ += peek();
        ++at_;
    }
    atom_begin_.reset();
    if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') refuse("a repetition of a repetition");
}

/// "{2}", "{2,}", "{,3}", "{2,3}"; any other brace is a character.
void Translator::interval() {
    std::size_t end = 1;
    const auto number = [&]() -> std::string_view {
        const std::size_t begin = end;
        while (end < rest().size() && is_digit(rest()[end])) ++end;
        return rest().substr(begin, end - begin);
    };
    const std::string_view low = number();
    const bool has_comma = end < rest().size() && rest()[end] == ',';
    if (has_comma) ++end;
    const std::string_view high = has_comma ? number() : low;
    const bool is_interval = end < rest().size() && rest()[end] == '}' && !(low.empty() && high.empty());
    if (!is_interval) {
        atom(hex('{'));
        ++at_;
        return;
    }
    if (!atom_begin_) refuse("a repetition of nothing");
    if (low.size() > 3 || high.size() > 3) refuse("an interval of more than 999");
    const std::string text = low == high && !has_comma ? fmt::format("{{{}}}", low)
                                                       : fmt::format("{{{},{}}}", low.empty() ? "0" : low, high);
    at_ += end + 1;
    out_ += text;
    if (take("+")) {
        if (dialect_ == PatternDialect::Oniguruma) {
            out_.insert(*atom_begin_, "(?:");
            out_ += ")+";
        } else {
            out_ += '+';
        }
    } else if (take("?")) {
        if (dialect_ == PatternDialect::Oniguruma && !has_comma) refuse("'{n}?'");  // optional there, lazy elsewhere
        out_ += '?';
    }
    atom_begin_.reset();
    if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') refuse("a repetition of a repetition");
}

void Translator::escape() {
    const char letter = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    switch (letter) {
        case 's':
        case 'S':
        case 'd':
        case 'D':
        case 'w':
        case 'W':
            at_ += 2;
            escaped_set(letter);
            return;
        case 'p':
        case 'P':
            at_ += 2;
            atom(property(letter));
            return;
        case 'A':
        case 'z':
            at_ += 2;
            out_ += letter == 'A' ? "\\A" : "\\z";
            atom_begin_.reset();
            return;
        default:
            at_ += 1;
            atom(hex(escaped_character(letter)));
    }
}

void Translator::escaped_set(char letter) {
    switch (letter) {
        case 's':
            atom(fmt::format("[{}]", kSpaces));
            return;
        case 'S':
            atom(fmt::format("[^{}]", kSpaces));
            return;
        case 'd':
            atom("\\p{Nd}");
            return;
        case 'D':
            atom("\\P{Nd}");
            return;
        case 'w':
            atom(fmt::format("[{}]", word()));
            return;
        default:
            atom(fmt::format("[^{}]", word()));
    }
}

/// Behind "\p" or "\P": general categories as they are, longer names as scripts.
std::string Translator::property(char letter) {
    constexpr std::array<std::string_view, 38> categories = {"C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo",
                                                             "Lt", "Lu", "M",  "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No",
                                                             "P",  "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S",  "Sc",
                                                             "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs", "L&"};
    bool negated = letter == 'P';
    if (!take("{")) refuse("a property without braces");
    if (take("^")) negated = !negated;
    const std::size_t end = rest().find('}');
    if (end == std::string_view::npos) refuse("a property that is not closed");
    const std::string_view property = rest().substr(0, end);
    const bool is_name =
        !property.empty() && std::ranges::all_of(property, [](char c) { return is_letter(c) || c == '_'; });
    if (!is_name) refuse(fmt::format("the property '{}'", printable(property)));
    at_ += end + 1;
    const bool is_category = std::ranges::find(categories, property) != categories.end();
    return fmt::format("\\{}{{{}{}}}", negated ? 'P' : 'p', is_category ? "" : "sc:", property);
}

/// Behind the backslash, which at_ has passed: the character that is meant.
char32_t Translator::escaped_character(char letter) {
    ++at_;
    switch (letter) {
        case 'n':
            return '\n';
        case 'r':
            return '\r';
        case 't':
            return '\t';
        case 'f':
            return '\f';
        case 'v':
            return '\v';
        case 'x': {
            if (!take("{")) return hex_digits(2);
            const std::size_t n = std::min(rest().find('}'), std::size_t{9});
            const char32_t point = hex_digits(n);
            if (!take("}")) refuse("'\\x{' that is not closed");
            return point;
        }
        case 'u':
            if (peek() == '{') refuse("'\\u{'");
            return hex_digits(4);
        default:
            if (static_cast<unsigned char>(letter) > 0x20 && static_cast<unsigned char>(letter) < 0x7f &&
                !is_letter(letter) && !is_digit(letter))
                return static_cast<char32_t>(letter);
            if (letter == ' ') return ' ';
            refuse(fmt::format("'\\{}'", printable(std::string_view(&letter, 1))));
    }
}

char32_t Translator::hex_digits(std::size_t n) {
    if (n == 0 || n > 8 || rest().size() < n) refuse("a number that is cut short");
    std::uint64_t value = 0;
    for (const char c : rest().substr(0, n)) {
        const char lower = is_letter(c) ? static_cast<char>(c | 0x20) : c;
        if (!is_digit(c) && (lower < 'a' || lower > 'f')) refuse("a number that is not hexadecimal");
        value = value * 16 + static_cast<std::uint64_t>(is_digit(c) ? c - '0' : lower - 'a' + 10);
    }
    at_ += n;
    if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) refuse("a number that is no character");
    return static_cast<char32_t>(value);
}

void Translator::character_class() {
    take("[");
    const bool negated = take("^");
    std::string items;
    class_items(items, 0);
    atom(fmt::format("[{}{}]", negated ? "^" : "", items));
}

/// Up to and with the closing bracket; a class inside is part of the union.
void Translator::class_items(std::string& items, std::size_t depth) {
    if (depth == kMaxDepth) refuse("classes nested too deeply");
    if (peek() == ']') refuse("an empty class");
    while (!take("]")) {
        if (at_end()) refuse("a class that is not closed");
        if (rest().starts_with("&&")) refuse("'&&'");
        if (rest().starts_with("[:")) refuse("'[:'");
        if (rest().starts_with("[^")) refuse("a negated class in a class");
        if (take("[")) {
            class_items(items, depth + 1);
            continue;
        }
        const auto first = class_character(items);
        if (dialect_ == PatternDialect::Rust && (rest().starts_with("--") || rest().starts_with("~~")))
            refuse("set operations in a class");
        if (!first) continue;
        const bool is_range =
            peek() == '-' && !rest().starts_with("-]") && !rest().starts_with("-[") && rest().size() > 1;
        if (!is_range) {
            items += hex(*first);
            continue;
        }
        take("-");
        const auto last = class_character(items);
        if (!last || *last < *first) refuse("a range without a proper end");
        items += hex(*first) + "-" + hex(*last);
    }
}

/// One character of a class; nothing where it was a set, which has been appended to `items`.
std::optional<char32_t> Translator::class_character(std::string& items) {
    if (peek() != '\\') return take_character();
    const char letter = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    constexpr std::string_view sets = "sSdDwpP";
    if (sets.find(letter) == std::string_view::npos || letter == '\0') {
        if (letter == 'b') refuse("'\\b' in a class");
        at_ += 1;
        return escaped_character(letter);
    }
    at_ += 2;
    if (letter == 's') items += kSpaces;
    if (letter == 'S') items += kNoSpaces;
    if (letter == 'd') items += "\\p{Nd}";
    if (letter == 'D') items += "\\P{Nd}";
    if (letter == 'w') items += word();
    if (letter == 'p' || letter == 'P') items += property(letter);
    return std::nullopt;
}

}  // namespace

std::string to_pcre2(std::string_view pattern, PatternDialect dialect, std::string_view name) {
    return Translator(pattern, dialect, name).run();
}

std::string literal_pcre2(std::string_view text) {
    std::string result;
    for (std::size_t at = 0; at < text.size(); at += next_utf8(text.substr(at)).length)
        result += hex(code_point(text.substr(at)));
    return result;
}

}  // namespace slipstream
