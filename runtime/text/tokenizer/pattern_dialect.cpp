#include "runtime/text/tokenizer/pattern_dialect.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"
#include "runtime/text/utf8.h"

namespace slipstream {

namespace {

// The characters that \s means in Oniguruma and Rust (Unicode's White_Space property), and in kNoSpaces all other
// characters. Both are in PCRE2's syntax, for use inside of a class.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNoSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
// The characters that \w means in Oniguruma and in Rust, in PCRE2's syntax, for use inside of a class. Oniguruma: \w of
// UTS 18 without the two joiners (U+200C, U+200D), with six characters of Latin-1 (U+00B2, U+00B3, U+00B9, U+00BC to
// U+00BE).
constexpr std::string_view kWordOniguruma = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view kWordRust = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d})";

// Limits the length of a pattern, in bytes: far above all published ones, so that a hostile file cannot make
// compilation slow.
constexpr std::size_t kMaxPatternBytes = 1 << 16;
// Limits the nesting of groups, and of classes, in levels, so that recursion over a pattern stays shallow.
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
    [[nodiscard]] bool is_oniguruma() const { return dialect_ == PatternDialect::Oniguruma; }
    [[nodiscard]] bool at_end() const { return at_ == pattern_.size(); }
    [[nodiscard]] std::string_view rest() const { return pattern_.substr(at_); }
    [[nodiscard]] bool at(std::string_view text) const { return rest().starts_with(text); }
    [[nodiscard]] bool at_any(std::string_view characters) const {
        return !at_end() && characters.find(pattern_[at_]) != std::string_view::npos;
    }
    bool take(std::string_view text) {
        if (!at(text)) return false;
        at_ += text.size();
        return true;
    }
    char take_byte() { return at_end() ? '\0' : pattern_[at_++]; }
    char32_t take_character() {
        const char32_t point = code_point(rest());
        at_ += next_utf8(rest()).length;
        return point;
    }

    void atom(std::string_view text) {
        atom_begin_ = out_.size();
        out_ += text;
    }
    // Writes something that no quantifier may follow.
    void mark(std::string_view text) {
        atom_begin_.reset();
        out_ += text;
    }

    void item() {
        if (at("(")) return group();
        if (at("[")) {
            std::string items;
            take("[");
            const std::string_view sign = take("^") ? "^" : "";
            class_items(items, 0);
            return atom(fmt::format("[{}{}]", sign, items));
        }
        if (at("{")) return interval();
        if (at_any("*+?")) return repeat();
        if (take(")")) {
            if (groups_.empty()) refuse("a ')' too many");
            out_ += ')';
            atom_begin_ = groups_.back();
            groups_.pop_back();
        } else if (take("|")) {
            mark("|");
        } else if (take(".")) {
            atom("[^\\x{a}]");
        } else if (take("^")) {  // "^": the beginning of any line in Oniguruma, of the text in Rust
            mark(is_oniguruma() ? "(?m:^)" : "\\A");
        } else if (take("$")) {
            mark(is_oniguruma() ? "(?m:$)" : "\\z");
        } else if (at("\\A") || at("\\z")) {
            mark(rest().substr(0, 2));
            at_ += 2;
        } else if (take("\\")) {
            std::string set;
            const auto character = escaped(set, Place::Alone);
            atom(character ? hex(*character) : set);
        } else {
            const char32_t point = take_character();
            const auto c = static_cast<char>(point);
            atom(point < 0x80 && (is_letter(c) || is_digit(c)) ? std::string(1, c) : hex(point));
        }
    }

    void group() {
        constexpr std::array<std::string_view, 8> kKinds = {
            "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};
        if (groups_.size() == kMaxDepth) refuse("groups nested too deeply");
        const std::size_t begin = out_.size();
        if (take("(?i)")) {
            out_ += "(?i)";
            return;
        }
        const auto* const kind = std::ranges::find_if(kKinds, [this](std::string_view text) { return take(text); });
        if (kind == kKinds.end() && (at("(?") || at("(*")))
            refuse(fmt::format("a group that begins with '{}'", printable(rest().substr(0, 4))));
        if (kind == kKinds.end()) take("(");
        // A capturing group becomes a plain one, since no supported pattern refers to a group.
        mark(kind != kKinds.end() ? *kind : "(?:");
        groups_.push_back(begin);
    }

    void repeat() {
        if (!atom_begin_) refuse("a repetition of nothing");
        out_ += take_byte();
        if (at_any("?+")) out_ += take_byte();  // lazy or possessive
        end_repetition();
    }

    void end_repetition() {
        atom_begin_.reset();
        if (at_any("*+?{")) refuse("a repetition of a repetition");
    }

    /// Translates an interval: "{2}", "{2,}", "{,3}" or "{2,3}". A brace that begins anything else is an ordinary
    /// character.
    void interval() {
        const std::size_t before = at_++;
        const auto number = [&] {
            const std::size_t begin = at_;
            while (at_any("0123456789")) ++at_;
            return pattern_.substr(begin, at_ - begin);
        };
        const std::string_view low = number();
        const bool has_comma = take(",");
        const std::string_view high = has_comma ? number() : low;
        if (!take("}") || (low.empty() && high.empty())) {
            at_ = before + 1;
            return atom(hex('{'));
        }
        if (!atom_begin_) refuse("a repetition of nothing");
        if (low.size() > 3 || high.size() > 3) refuse("an interval of more than 999");
        out_ += has_comma ? fmt::format("{{{},{}}}", low.empty() ? "0" : low, high) : fmt::format("{{{}}}", low);
        if (take("+")) {
            if (is_oniguruma()) out_.insert(*atom_begin_, "(?:");
            out_ += is_oniguruma() ? ")+" : "+";
        } else if (take("?")) {
            // Oniguruma reads "{n}?" as an optional item, the other syntaxes as a lazy interval.
            if (is_oniguruma() && !has_comma) refuse("'{n}?'");
            out_ += '?';
        }
        end_repetition();
    }

    enum class Place : std::uint8_t { Alone, InClass };
    /// Reads the escape sequence after a backslash. Returns the character that it means; if it means a set of
    /// characters, sets `set` to the set in PCRE2's syntax and returns nullopt.
    std::optional<char32_t> escaped(std::string& set, Place place) {
        const std::string_view word = is_oniguruma() ? kWordOniguruma : kWordRust;
        const bool in_class = place == Place::InClass;
        const char letter = take_byte();
        switch (letter) {
            case 's':
                set = in_class ? std::string(kSpaces) : fmt::format("[{}]", kSpaces);
                return std::nullopt;
            case 'S':
                set = in_class ? std::string(kNoSpaces) : fmt::format("[^{}]", kSpaces);
                return std::nullopt;
            case 'd':
            case 'D':
                set = letter == 'd' ? "\\p{Nd}" : "\\P{Nd}";
                return std::nullopt;
            case 'w':
                set = in_class ? std::string(word) : fmt::format("[{}]", word);
                return std::nullopt;
            case 'W':
                if (in_class) refuse("'\\W' in a class");
                set = fmt::format("[^{}]", word);
                return std::nullopt;
            case 'p':
            case 'P':
                set = property(letter == 'P');
                return std::nullopt;
            case 'x': {
                if (!take("{")) return hex_digits(2);
                const char32_t point = hex_digits(std::min(rest().find('}'), std::size_t{9}));
                if (!take("}")) refuse("'\\x{' that is not closed");
                return point;
            }
            case 'u':
                if (at("{")) refuse("'\\u{'");
                return hex_digits(4);
            default:
                break;
        }
        constexpr std::string_view kLetters = "nrtfv";
        constexpr std::string_view kMeaning = "\n\r\t\f\v";
        if (const std::size_t i = kLetters.find(letter); i != std::string_view::npos)
            return static_cast<char32_t>(kMeaning[i]);
        const auto byte = static_cast<unsigned char>(letter);
        if (byte < 0x20 || byte >= 0x7f || is_letter(letter) || is_digit(letter))
            refuse(fmt::format("'\\{}'", printable(std::string_view(&letter, 1))));
        return byte;
    }

    /// Reads the property after "\p" or "\P" and returns it in PCRE2's syntax. Names of general categories stay as they
    /// are; a longer name is taken as the name of a script.
    std::string property(bool negated) {
        constexpr std::array<std::string_view, 38> kCategories = {
            "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",
            "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi",
            "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs", "L&"};
        if (!take("{")) refuse("a property without braces");
        if (take("^")) negated = !negated;
        const std::size_t end = rest().find('}');
        if (end == std::string_view::npos) refuse("a property that is not closed");
        const std::string_view property = rest().substr(0, end);
        const bool is_name =
            !property.empty() && std::ranges::all_of(property, [](char c) { return is_letter(c) || c == '_'; });
        if (!is_name) refuse(fmt::format("the property '{}'", printable(property)));
        at_ += end + 1;
        const bool is_category = std::ranges::find(kCategories, property) != kCategories.end();
        return fmt::format("\\{}{{{}{}}}", negated ? 'P' : 'p', is_category ? "" : "sc:", property);
    }

    char32_t hex_digits(std::size_t n) {
        if (n == 0 || n > 8 || rest().size() < n) refuse("a number that is cut short");
        std::uint32_t value = 0;
        const auto [end, error] = std::from_chars(rest().data(), rest().data() + n, value, 16);
        if (error != std::errc() || end != rest().data() + n) refuse("a number that is not hexadecimal");
        if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) refuse("a number that is not a character");
        at_ += n;
        return value;
    }

    /// Reads a class up to and including its closing bracket and appends its contents to `items`. A class inside of the
    /// class becomes part of the union.
    void class_items(std::string& items, std::size_t depth) {
        if (depth == kMaxDepth) refuse("classes nested too deeply");
        if (at("]")) refuse("an empty class");
        while (!take("]")) {
            if (at_end()) refuse("a class that is not closed");
            for (const std::string_view unread : {"&&", "[:", "[^"})
                if (at(unread)) refuse(fmt::format("'{}' in a class", unread));
            if (take("[")) {
                class_items(items, depth + 1);
                continue;
            }
            const auto first = class_character(items);
            if (!is_oniguruma() && (at("--") || at("~~"))) refuse("set operations in a class");
            if (!first) continue;
            items += hex(*first);
            if (!at("-") || at("-]") || at("-[") || rest().size() == 1) continue;
            take("-");
            const auto last = class_character(items);
            if (!last || *last < *first) refuse("a range without a proper end");
            items.append("-").append(hex(*last));
        }
    }

    /// Reads one element of a class. Returns a character; if the element is a set of characters, appends the set to
    /// `items` and returns nullopt.
    std::optional<char32_t> class_character(std::string& items) {
        if (at_end()) refuse("a class that is not closed");
        if (!take("\\")) return take_character();
        if (at("b")) refuse("'\\b' in a class");
        std::string set;
        const auto character = escaped(set, Place::InClass);
        items += set;
        return character;
    }

    std::string_view pattern_;
    PatternDialect dialect_;
    std::string_view name_;
    std::size_t at_ = 0;
    std::string out_;
    // Position in out_ at which the item begins that a quantifier would repeat; nullopt if a quantifier may not follow.
    std::optional<std::size_t> atom_begin_;
    std::vector<std::size_t> groups_;  // positions in out_ at which the open groups begin
};

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
