#include "tools/options/toml_file.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "tools/terminal/usage_error.h"

namespace slipstream::tools {

namespace {

bool is_bare(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

void append_utf8(std::string& out, unsigned code) {
    const auto put = [&out](unsigned byte) { out += static_cast<char>(byte); };
    if (code < 0x80) {
        put(code);
    } else if (code < 0x800) {
        put(0xc0 | code >> 6);
        put(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        put(0xe0 | code >> 12);
        put(0x80 | (code >> 6 & 0x3f));
        put(0x80 | (code & 0x3f));
    } else {
        put(0xf0 | code >> 18);
        put(0x80 | (code >> 12 & 0x3f));
        put(0x80 | (code >> 6 & 0x3f));
        put(0x80 | (code & 0x3f));
    }
}

class TomlParser {
public:
    TomlParser(std::string_view text, std::string_view name) : text_(text), name_(name) {}

    std::vector<TomlEntry> parse() {
        std::string section;
        for (;;) {
            skip_blank_lines();
            if (at_end()) return std::move(entries_);
            if (peek() == '[') {
                section = parse_section();
            } else {
                parse_entry(section);
            }
            end_line();
        }
    }

private:
    [[noreturn]] void fail(std::string_view what) const {
        throw UsageError(fmt::format("{}:{}: {}", name_, line_, what));
    }
    [[nodiscard]] bool at_end() const { return at_ == text_.size(); }
    [[nodiscard]] char peek() const { return at_end() ? '\0' : text_[at_]; }
    char take() {
        if (at_end()) fail("the file ends in the middle of a value");
        if (text_[at_] == '\n') ++line_;
        return text_[at_++];
    }
    void skip_spaces() {
        while (peek() == ' ' || peek() == '\t' || (peek() == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n'))
            ++at_;
    }
    void skip_comment() {
        if (peek() != '#') return;
        while (!at_end() && peek() != '\n') ++at_;
    }
    void skip_blank_lines() {
        for (;;) {
            skip_spaces();
            skip_comment();
            if (peek() != '\n' || at_end()) return;
            take();
        }
    }
    void end_line() {
        skip_spaces();
        skip_comment();
        if (at_end()) return;
        if (peek() != '\n') fail("something stands behind the value; one entry a line");
        take();
    }

    std::string parse_name(std::string_view what) {
        if (peek() == '"' || peek() == '\'') return parse_string();
        const std::size_t begin = at_;
        while (is_bare(peek())) ++at_;
        if (begin == at_) fail(fmt::format("{} expected", what));
        return std::string(text_.substr(begin, at_ - begin));
    }

    std::string parse_section() {
        take();
        if (peek() == '[') fail("arrays of tables are not used here; write [command]");
        skip_spaces();
        std::string name = parse_name("the name of a section");
        skip_spaces();
        if (peek() != ']') fail("a section is one name in brackets, [command]");
        take();
        if (!sections_.insert(name).second) fail(fmt::format("the section [{}] stands here twice", name));
        return name;
    }

    void parse_entry(const std::string& section) {
        TomlEntry entry;
        entry.section = section;
        entry.line = line_;
        entry.key = parse_name("the name of an option");
        skip_spaces();
        if (peek() == '.') fail("dotted keys are not used here; write a [section]");
        if (peek() != '=') fail(fmt::format("'=' expected behind {}", entry.key));
        take();
        skip_spaces();
        if (peek() == '[') {
            parse_array(entry.values);
        } else {
            entry.values.push_back(parse_scalar());
        }
        if (!keys_.emplace(section, entry.key).second) fail(fmt::format("{} stands here twice", entry.key));
        entries_.push_back(std::move(entry));
    }

    void parse_array(std::vector<std::string>& values) {
        take();
        for (;;) {
            skip_blank_lines();
            if (peek() == ']') break;
            values.push_back(parse_scalar());
            skip_blank_lines();
            if (peek() == ',') {
                take();
            } else if (peek() != ']') {
                fail("',' or ']' expected in an array");
            }
        }
        take();
    }

    std::string parse_scalar() {
        if (peek() == '"' || peek() == '\'') return parse_string();
        const std::size_t begin = at_;
        while (is_bare(peek()) || peek() == '.' || peek() == '+') ++at_;
        std::string token(text_.substr(begin, at_ - begin));
        if (token == "true" || token == "false") return token;
        // Numbers are checked by the option that gets them; text without quotes is a mistake that is caught here.
        const bool numeric = !token.empty() && token.find_first_not_of("0123456789+-._eE") == std::string::npos &&
                             token.find_first_of("0123456789") != std::string::npos;
        if (!numeric) fail("a value is a number, true, false, a \"text\" in quotes, or [an array] of these");
        std::erase(token, '_');
        return token;
    }

    std::string parse_string() {
        const char quote = take();
        if (text_.substr(at_).starts_with(std::string(2, quote))) fail("strings of several lines are not used here");
        std::string out;
        for (;;) {
            if (at_end() || peek() == '\n') fail("a string without its closing quote");
            const char c = take();
            if (c == quote) return out;
            if (c == '\\' && quote == '"') {
                append_escape(out);
            } else {
                out += c;
            }
        }
    }

    void append_escape(std::string& out) {
        static constexpr std::string_view kLetters = "btnfr\"\\";
        static constexpr std::string_view kMeanings = "\b\t\n\f\r\"\\";
        const char c = take();
        if (const std::size_t which = kLetters.find(c); which != std::string_view::npos) {
            out += kMeanings[which];
            return;
        }
        if (c != 'u' && c != 'U') fail(fmt::format("no escape \\{} in a string; a backslash is \\\\", c));
        unsigned code = 0;
        for (int i = c == 'u' ? 4 : 8; i > 0; --i) {
            const char digit = take();
            const std::size_t value = std::string_view("0123456789abcdef").find(static_cast<char>(digit | 0x20));
            if (value == std::string_view::npos || code > 0x10ffff)
                fail("\\u takes four, \\U eight hexadecimal digits of a character");
            code = code << 4 | static_cast<unsigned>(value);
        }
        if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) fail("an escape that is no character");
        append_utf8(out, code);
    }

    std::string_view text_;
    std::string_view name_;
    std::size_t at_ = 0;
    int line_ = 1;
    std::vector<TomlEntry> entries_;
    std::set<std::string> sections_;
    std::set<std::pair<std::string, std::string>> keys_;  // section, key
};

}  // namespace

std::vector<TomlEntry> parse_toml(std::string_view text, std::string_view name) {
    return TomlParser(text, name).parse();
}

}  // namespace slipstream::tools
