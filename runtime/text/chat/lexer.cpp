#include "runtime/text/chat/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "runtime/text/chat/numbers.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

// The longer ones first.
constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool is_digit_char(char c) {
    return c >= '0' && c <= '9';
}

std::string_view strip_left(std::string_view text) {
    return text.substr(stripped(text, Ends::Left).begin);
}

// "\r\n" and "\r" are line ends too; one at the very end goes.
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

// The length of digits, with single underscores between them, at the front of `text`; 0 where no digit stands there.
std::size_t digits_length(std::string_view text) {
    std::size_t n = 0;
    while (n < text.size() && is_digit_char(text[n])) {
        ++n;
        if (n + 1 < text.size() && text[n] == '_' && is_digit_char(text[n + 1])) ++n;
    }
    return n;
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
        // The end of the template is where its last token is.
        if (!tokens_.empty()) line_ = tokens_.back().line;
        add(TokenType::End);
        return std::move(tokens_);
    }

private:
    [[nodiscard]] std::string_view rest() const { return source_.substr(at_); }
    [[nodiscard]] bool at(std::string_view text) const { return rest().starts_with(text); }

    void advance(std::size_t n) {
        const std::string_view read = source_.substr(at_, n);
        line_ += static_cast<int>(std::count(read.begin(), read.end(), '\n'));
        at_ += read.size();
    }
    void skip_spaces() { advance(rest().size() - strip_left(rest()).size()); }
    void skip_line_end() {
        if (at("\n")) advance(1);
    }

    Token& add(TokenType type, std::string text = {}) {
        tokens_.push_back({.type = type, .line = line_, .text = std::move(text)});
        return tokens_.back();
    }

    // Where the next tag begins, or the end of the source.
    [[nodiscard]] std::size_t next_tag() const {
        for (std::size_t open = at_; (open = source_.find('{', open)) != std::string_view::npos; ++open) {
            const char kind = open + 1 < source_.size() ? source_[open + 1] : '\0';
            if (kind == '%' || kind == '{' || kind == '#') return open;
        }
        return source_.size();
    }

    // Text up to the next tag, and that tag.
    void root() {
        const std::size_t open = next_tag();
        if (open == source_.size()) return data(open, '+');
        const char kind = source_[open + 1];
        const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
        const bool has_sign = sign == '-' || sign == '+';
        // Only block tags and comments take the spaces before them.
        data(open, has_sign ? sign : kind == '{' ? '+' : '\0');
        line_starts_ = false;
        if (kind == '#') {
            advance(has_sign ? 3 : 2);
            comment();
        } else if (kind == '{') {
            add(TokenType::VariableBegin);
            advance(has_sign ? 3 : 2);
            tag(TokenType::VariableEnd);
        } else if (const std::size_t length = raw_begin_length(); length > 0) {
            advance(length);
            line_starts_ = source_[at_ - 1] == '\n';
            raw();
        } else {
            add(TokenType::BlockBegin);
            advance(has_sign ? 3 : 2);
            tag(TokenType::BlockEnd);
        }
    }

    // Text up to `end`, where a tag begins: "-" takes all white space before it, none said (0) the spaces of its line.
    void data(std::size_t end, char sign) {
        std::string_view text = source_.substr(at_, end - at_);
        if (sign == '-') {
            text = text.substr(0, stripped(text, Ends::Right).end);
        } else if (sign == 0) {
            const std::size_t line_begin = text.rfind('\n') + 1;  // 0 where there is none
            if ((line_begin > 0 || line_starts_) && strip_left(text.substr(line_begin)).empty())
                text = text.substr(0, line_begin);
        }
        if (!text.empty()) add(TokenType::Data, std::string(text));
        advance(end - at_);
    }

    // The end of a tag whose closing mark of two characters stands at `mark`, perhaps with a sign before it.
    void finish(char sign, bool trims) {
        advance(sign == 0 ? 2 : 3);
        if (sign == '-') {
            skip_spaces();
        } else if (sign == 0 && trims) {
            skip_line_end();
        }
        line_starts_ = source_[at_ - 1] == '\n';
    }

    void comment() {
        if (at_ == source_.size()) return;
        const std::size_t end = source_.find("#}", at_);
        if (end == std::string_view::npos) fail("Missing end of comment tag");
        const char before = end > at_ ? source_[end - 1] : '\0';
        const bool has_sign = before == '-' || before == '+';
        advance(end - at_ - (has_sign ? 1 : 0));
        finish(has_sign ? before : '\0', true);
    }

    // "{% raw %}" with its signs: its length, or 0 where something else stands here.
    [[nodiscard]] std::size_t raw_begin_length() const {
        const std::string_view end = tag_of_word(rest(), "raw");
        if (end.empty()) return 0;
        const bool strips = end.starts_with("-%}");
        if (!strips && !end.starts_with("%}")) return 0;
        return rest().size() - (strips ? strip_left(end.substr(3)) : end.substr(2)).size();
    }

    // What follows "{% word" at the front of `text`; empty where that does not stand there.
    static std::string_view tag_of_word(std::string_view text, std::string_view word) {
        if (!text.starts_with("{%")) return {};
        text.remove_prefix(2);
        if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
        text = strip_left(text);
        if (!text.starts_with(word)) return {};
        return strip_left(text.substr(word.size()));
    }

    void raw() {
        if (at_ == source_.size()) return;
        for (std::size_t open = at_; (open = source_.find("{%", open)) != std::string_view::npos; ++open) {
            const std::string_view end = tag_of_word(source_.substr(open), "endraw");
            const bool has_sign = end.starts_with("-%}") || end.starts_with("+%}");
            if (!has_sign && !end.starts_with("%}")) continue;
            const char sign = source_[open + 2];
            data(open, sign == '-' || sign == '+' ? sign : '\0');
            advance(rest().size() - end.size());
            finish(has_sign ? end.front() : '\0', true);
            return;
        }
        fail("Missing end of raw directive");
    }

    // The inside of {{ }} or {% %}.
    void tag(TokenType end) {
        const std::string_view mark = end == TokenType::VariableEnd ? "}}" : "%}";
        open_.clear();
        while (at_ < source_.size()) {
            if (open_.empty() && at_end(end, mark)) return;
            const std::size_t spaces = rest().size() - strip_left(rest()).size();
            if (spaces > 0) {
                advance(spaces);
            } else {
                token();
            }
        }
    }

    bool at_end(TokenType end, std::string_view mark) {
        const char first = source_[at_];
        const bool has_sign =
            (first == '-' || (first == '+' && end == TokenType::BlockEnd)) && source_.substr(at_ + 1).starts_with(mark);
        if (!has_sign && !at(mark)) return false;
        add(end);
        finish(has_sign ? first : '\0', end == TokenType::BlockEnd);
        return true;
    }

    void token() {
        if (is_digit_char(source_[at_])) return number();
        if (source_[at_] == '\'' || source_[at_] == '"') return text();
        const std::size_t length = name_length();
        if (length > 0) {
            add(TokenType::Name, std::string(rest().substr(0, length)));
            advance(length);
            return;
        }
        const auto found = std::find_if(kOperators.begin(), kOperators.end(), [this](auto sign) { return at(sign); });
        if (found == kOperators.end()) fail("unexpected char {}", quoted(first_char(rest()).bytes));
        balance(found->front());
        add(TokenType::Operator, std::string(*found));
        advance(found->size());
    }

    [[nodiscard]] std::size_t name_length() const {
        std::string_view text = rest();
        if (!is_identifier_start(first_char(text).code)) return 0;
        while (!text.empty() && is_identifier_part(first_char(text).code)) take_char(text);
        return rest().size() - text.size();
    }

    void number() {
        const auto digits_at = [this](std::size_t n) {
            return digits_length(rest().substr(std::min(n, rest().size())));
        };
        const auto char_at = [this](std::size_t n) { return n < rest().size() ? rest()[n] : '\0'; };
        if (char_at(0) == '0' && std::string_view("xXoObB").find(char_at(1)) < 6)
            fail("numbers that begin with {} are not served: write them in decimal digits", rest().substr(0, 2));
        const std::size_t whole = digits_at(0);
        std::size_t length = whole;
        if (at_ == 0 || source_[at_ - 1] != '.') {  // "x.1.5" is element 1, element 5
            if (char_at(length) == '.' && digits_at(length + 1) > 0) length += 1 + digits_at(length + 1);
            const std::size_t sign = char_at(length + 1) == '+' || char_at(length + 1) == '-' ? 1 : 0;
            const bool has_exponent = (char_at(length) | 0x20) == 'e' && digits_at(length + 1 + sign) > 0;
            if (has_exponent) length += 1 + sign + digits_at(length + 1 + sign);
        }
        Token& token =
            add(length > whole ? TokenType::Float : TokenType::Integer, std::string(rest().substr(0, length)));
        std::erase(token.text, '_');
        if (length > whole) {
            token.real = std::strtod(token.text.c_str(), nullptr);
        } else {
            const char* end = token.text.data() + token.text.size();
            if (std::from_chars(token.text.data(), end, token.integer).ec != std::errc())
                fail("the number {}: integers have 64 bits here", token.text);
        }
        advance(length);
    }

    void text() {
        const char quote = source_[at_];
        std::size_t end = at_ + 1;
        while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
        if (end >= source_.size())
            fail("unexpected char {} (a string without an end)", quoted(std::string_view(&quote, 1)));
        add(TokenType::Text, unescape_literal(source_.substr(at_ + 1, end - at_ - 1)));
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
    std::string open_;         // closing brackets still owed
    bool line_starts_ = true;  // whether what was read last ended with a line end
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
    const std::string text = normalized(source);
    return Lexer(text).run();
}

}  // namespace slipstream::jinja
