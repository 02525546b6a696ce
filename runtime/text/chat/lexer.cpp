#include "runtime/text/chat/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "runtime/text/chat/spelling.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

// The operators of the template language. The lexer takes the first that matches, so an operator must be before its
// prefixes.
constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool is_digit_char(char c) {
    return c >= '0' && c <= '9';
}
bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit_char(c);
}

std::string_view strip_left(std::string_view text) {
    return text.substr(stripped(text, Ends::Left).begin);
}

// Returns `source` with "\r\n" and "\r" replaced by "\n", and without one line end at its end.
std::string normalized(std::string_view source) {
    std::string out;
    out.reserve(source.size());
    for (std::size_t i = 0; i < source.size(); ++i) {
        if (source[i] != '\r') {
            out.push_back(source[i]);
        } else if (i + 1 == source.size() || source[i + 1] != '\n') {
            out.push_back('\n');
        }
    }
    if (out.ends_with('\n')) out.pop_back();
    return out;
}

// Appends the character of a numeric escape, whose digits are the first characters of `rest`, and removes them from
// `rest`. An octal escape (base 8) has up to `n_digits` digits, a hexadecimal one (base 16) exactly `n_digits`.
void append_numbered(std::string& out, std::string_view& rest, std::size_t n_digits, int base) {
    std::uint32_t code = 0;
    const char* end = rest.data() + std::min(n_digits, rest.size());
    const auto [stop, error] = std::from_chars(rest.data(), end, code, base);
    const auto n_read = static_cast<std::size_t>(stop - rest.data());
    if (error != std::errc() || (base == 16 && n_read < n_digits)) fail("a truncated escape in a string");
    if (code > 0x10ffff) fail("illegal Unicode character");
    if (code >= 0xd800 && code < 0xe000) fail("a surrogate in a string: write the character itself, or \\UXXXXXXXX");
    append_utf8(code, out);
    rest.remove_prefix(n_read);
}

// Returns the contents of a string literal, given without its quotes, with escapes replaced as in Python.
std::string unescaped(std::string_view rest) {
    constexpr std::string_view kSimple = "\\'\"abfnrtv";
    constexpr std::string_view kMeaning = "\\'\"\a\b\f\n\r\t\v";
    std::string out;
    while (true) {
        const std::size_t backslash = std::min(rest.find('\\'), rest.size());
        out.append(rest.substr(0, backslash));
        rest.remove_prefix(backslash);
        if (rest.empty()) return out;
        const char kind = rest[1];  // rest begins with an escape here; text() reads a backslash together with the next
                                    // character, so there is one
        rest.remove_prefix(1);
        if (kind >= '0' && kind <= '7') {
            append_numbered(out, rest, 3, 8);
            continue;
        }
        rest.remove_prefix(1);
        if (const std::size_t at = kSimple.find(kind); at != std::string_view::npos) {
            out += kMeaning[at];
        } else if (kind == 'x' || kind == 'u' || kind == 'U') {
            append_numbered(out, rest, kind == 'x' ? 2 : kind == 'u' ? 4 : 8, 16);
        } else if (kind == 'N') {
            fail("characters by name (\\N{{...}}) are not served; write the character itself");
        } else if (kind != '\n') {
            out.append({'\\', kind});  // not an escape: both characters are kept
        }
    }
}

class Lexer {
public:
    explicit Lexer(std::string_view source) : source_(source) {}

    std::vector<Token> run() {
        try {
            while (at_ < source_.size()) root();
        } catch (const TemplateError& error) {
            add(TokenType::Error, error.message());
        }
        // The line of the token End is that of the last token.
        if (!tokens_.empty()) line_ = tokens_.back().line;
        add(TokenType::End);
        return std::move(tokens_);
    }

private:
    [[nodiscard]] std::string_view rest() const { return source_.substr(at_); }
    [[nodiscard]] bool at(std::string_view text) const { return rest().starts_with(text); }
    // Returns the character at a position, or 0 past the end.
    [[nodiscard]] char char_at(std::size_t place) const { return place < source_.size() ? source_[place] : '\0'; }
    [[nodiscard]] char sign_at(std::size_t place) const {
        const char c = char_at(place);
        return c == '-' || c == '+' ? c : '\0';
    }

    void advance(std::size_t n) {
        const std::string_view read = source_.substr(at_, n);
        line_ += static_cast<int>(std::count(read.begin(), read.end(), '\n'));
        at_ += read.size();
    }
    void skip_spaces() { advance(rest().size() - strip_left(rest()).size()); }

    Token& add(TokenType type, std::string text = {}) {
        tokens_.push_back({.type = type, .line = line_, .text = std::move(text)});
        return tokens_.back();
    }

    // Returns the position of the next tag, or the size of the source.
    [[nodiscard]] std::size_t next_tag() const {
        std::size_t open = source_.find('{', at_);
        while (open != std::string_view::npos && std::string_view("%{#").find(char_at(open + 1)) > 2)
            open = source_.find('{', open + 1);
        return std::min(open, source_.size());
    }

    // Reads the text before the next tag, and that tag.
    void root() {
        const std::size_t open = next_tag();
        const char kind = char_at(open + 1);
        const char sign = sign_at(open + 2);
        // Only block tags and comments remove the spaces before them.
        data(open, sign == 0 && kind != '%' && kind != '#' ? '+' : sign);
        if (open == source_.size()) return;
        const std::size_t begin_bytes = sign == 0 ? 2 : 3;
        if (kind == '#') {
            advance(begin_bytes);
            comment();
        } else if (kind == '{') {
            add(TokenType::VariableBegin);
            advance(begin_bytes);
            tag(TokenType::VariableEnd, "}}");
        } else {
            add(TokenType::BlockBegin);
            advance(begin_bytes);
            tag(TokenType::BlockEnd, "%}");
        }
    }

    // Adds the text up to `end`, where a tag begins, as a token. `sign` is the sign of that tag: "-" removes all white
    // space before the tag; without a sign (0), the spaces before a tag that is the first on its line are removed; "+"
    // removes nothing.
    void data(std::size_t end, char sign) {
        std::string_view text = source_.substr(at_, end - at_);
        if (sign == '-') {
            text = text.substr(0, stripped(text, Ends::Right).end);
        } else if (sign == 0) {
            const std::size_t line_begin = text.rfind('\n') + 1;  // 0: `text` has no line end
            const bool begins_line = line_begin > 0 || at_ == 0 || source_[at_ - 1] == '\n';
            if (begins_line && strip_left(text.substr(line_begin)).empty()) text = text.substr(0, line_begin);
        }
        if (!text.empty()) add(TokenType::Data, std::string(text));
        advance(end - at_);
    }

    // Reads the two closing characters of a tag and the sign before them, if any (`sign` is not 0). "-" removes the
    // white space that follows. Without a sign, a line end that follows is removed if `trims` is true.
    void finish(char sign, bool trims) {
        advance(sign == 0 ? 2 : 3);
        if (sign == '-')
            skip_spaces();
        else if (sign == 0 && trims && at("\n"))
            advance(1);
    }

    void comment() {
        const std::size_t end = source_.find("#}", at_);
        if (end == std::string_view::npos) fail("Missing end of comment tag");
        const char sign = end > at_ ? sign_at(end - 1) : '\0';
        advance(end - at_ - (sign == 0 ? 0 : 1));
        finish(sign, true);
    }

    // Reads the inside of {{ }} or {% %} and its end.
    void tag(TokenType end, std::string_view mark) {
        open_.clear();
        for (skip_spaces(); at_ < source_.size(); skip_spaces()) {
            if (open_.empty() && at_end(end, mark)) return;
            token();
        }
    }

    bool at_end(TokenType end, std::string_view mark) {
        const bool has_sign = (source_[at_] == '-' || (source_[at_] == '+' && end == TokenType::BlockEnd)) &&
                              source_.substr(at_ + 1).starts_with(mark);
        if (!has_sign && !at(mark)) return false;
        add(end);
        finish(has_sign ? source_[at_] : '\0', end == TokenType::BlockEnd);
        return true;
    }

    void token() {
        const char first = source_[at_];
        if (is_digit_char(first)) return number();
        if (first == '\'' || first == '"') return text();
        if (is_name_char(first)) {
            std::size_t end = at_;
            while (is_name_char(char_at(end))) ++end;
            add(TokenType::Name, std::string(source_.substr(at_, end - at_)));
            return advance(end - at_);
        }
        const auto* const found = std::ranges::find_if(kOperators, [this](auto sign) { return at(sign); });
        if (found == kOperators.end()) fail("unexpected char {}", repr_of(first_char(rest()).bytes));
        balance(found->front());
        add(TokenType::Operator, std::string(*found));
        advance(found->size());
    }

    void number() {
        const auto digits_end = [this](std::size_t place) {
            while (is_digit_char(char_at(place))) ++place;
            return place;
        };
        const std::size_t whole = digits_end(at_);
        std::size_t end = whole;
        if (at_ == 0 || source_[at_ - 1] != '.') {  // in "x.1.5", 1 and 5 are two elements
            if (char_at(end) == '.' && is_digit_char(char_at(end + 1))) end = digits_end(end + 1);
            const std::size_t exponent = end + 1 + (sign_at(end + 1) == 0 ? 0 : 1);
            if ((char_at(end) | 0x20) == 'e' && is_digit_char(char_at(exponent))) end = digits_end(exponent);
        }
        Token& token =
            add(end > whole ? TokenType::Float : TokenType::Integer, std::string(rest().substr(0, end - at_)));
        if (end > whole)
            token.real = std::strtod(token.text.c_str(), nullptr);
        else if (std::from_chars(&token.text.front(), &token.text.back() + 1, token.integer).ec != std::errc())
            fail("the number {}: integers have 64 bits here", token.text);
        advance(end - at_);
    }

    void text() {
        const char quote = source_[at_];
        std::size_t end = at_ + 1;
        while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
        if (end >= source_.size()) fail("a string without an end");
        add(TokenType::Text, unescaped(source_.substr(at_ + 1, end - at_ - 1)));
        advance(end + 1 - at_);
    }

    void balance(char c) {
        if (c == '{') open_.push_back('}');
        if (c == '(') open_.push_back(')');
        if (c == '[') open_.push_back(']');
        if (c != '}' && c != ')' && c != ']') return;
        if (open_.empty()) fail("unexpected '{}'", c);
        if (open_.back() != c) fail("unexpected '{}', expected '{}'", c, open_.back());
        open_.pop_back();
    }

    std::string_view source_;
    int line_ = 1;
    std::size_t at_ = 0;
    std::vector<Token> tokens_;
    std::string open_;  // closing brackets that are expected, innermost last
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
    const std::string text = normalized(source);
    return Lexer(text).run();
}

}  // namespace slipstream::jinja
