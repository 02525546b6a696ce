#include "runtime/text/tokenizer/json_stream.h"

#include <array>
#include <charconv>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/utf8.h"

namespace slipstream {

namespace {

constexpr std::size_t kMaxDepth = 64;

bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// Bytes of a string that stand for themselves.
constexpr std::array<bool, 256> make_plain() {
    std::array<bool, 256> plain{};
    for (std::size_t byte = 0x20; byte < 0x80; ++byte) plain[byte] = byte != '"' && byte != '\\';
    return plain;
}
constexpr std::array<bool, 256> kPlain = make_plain();

/// Where the first byte at or after `at` stands that is a quote, a backslash, a control character or no UTF-8; or the
/// end.
std::size_t plain_end(std::string_view text, std::size_t at) {
    while (at < text.size()) {
        const auto byte = static_cast<unsigned char>(text[at]);
        if (kPlain[byte]) {
            ++at;
        } else if (byte >= 0x80) {
            const Utf8Step step = next_utf8(text.substr(at));
            if (step.kind != Utf8Kind::Complete) return at;
            at += step.length;
        } else {
            return at;
        }
    }
    return at;
}

}  // namespace

void JsonStream::fail(std::string_view what) const {
    throw FormatError(fmt::format("{}: {} at byte {} of {}", name_, what, at_, text_.size()));
}

void JsonStream::skip_space() {
    std::size_t at = at_;
    while (at < text_.size() && is_space(text_[at])) ++at;
    at_ = at;
}

JsonStream::Kind JsonStream::peek() {
    skip_space();
    if (at_ == text_.size()) fail("the JSON ends too early");
    switch (text_[at_]) {
        case '{':
            return Kind::Object;
        case '[':
            return Kind::Array;
        case '"':
            return Kind::String;
        case 't':
        case 'f':
            return Kind::Boolean;
        case 'n':
            return Kind::Null;
        default:
            if (text_[at_] == '-' || is_digit(text_[at_])) return Kind::Number;
            fail("not JSON");
    }
}

void JsonStream::expect(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) fail(fmt::format("'{}' is missing", c));
    ++at_;
}

void JsonStream::enter(char bracket) {
    expect(bracket);
    is_first_ = true;
}

bool JsonStream::next_item(char closing) {
    skip_space();
    if (at_ < text_.size() && text_[at_] == closing) {
        ++at_;
        is_first_ = false;
        return false;
    }
    if (!is_first_) expect(',');
    is_first_ = false;
    return true;
}

std::optional<std::string_view> JsonStream::next_key() {
    if (!next_item('}')) return std::nullopt;
    skip_space();
    const std::string_view key = string_into(key_scratch_);
    expect(':');
    return key;
}

bool JsonStream::next_element() {
    return next_item(']');
}

std::string_view JsonStream::string_into(std::string& scratch) {
    expect('"');
    const std::size_t begin = at_;
    at_ = plain_end(text_, at_);
    if (at_ < text_.size() && text_[at_] == '"') return text_.substr(begin, at_++ - begin);
    scratch.assign(text_.substr(begin, at_ - begin));
    for (;;) {
        if (at_ == text_.size()) fail("a text that does not end");
        const auto byte = static_cast<unsigned char>(text_[at_]);
        if (byte != '"' && byte != '\\')
            fail(byte < 0x20 ? "a control character in a text" : "a text that is not UTF-8");
        ++at_;
        if (byte == '"') return scratch;
        escape(scratch);
        const std::size_t end = plain_end(text_, at_);
        scratch.append(text_.substr(at_, end - at_));
        at_ = end;
    }
}

/// Behind the backslash.
void JsonStream::escape(std::string& scratch) {
    if (at_ == text_.size()) fail("a text that does not end");
    const char c = text_[at_++];
    switch (c) {
        case '"':
        case '\\':
        case '/':
            scratch += c;
            return;
        case 'b':
            scratch += '\b';
            return;
        case 'f':
            scratch += '\f';
            return;
        case 'n':
            scratch += '\n';
            return;
        case 'r':
            scratch += '\r';
            return;
        case 't':
            scratch += '\t';
            return;
        case 'u': {
            char32_t point = hex4();
            if (point >= 0xdc00 && point < 0xe000) fail("half of a surrogate pair");
            if (point >= 0xd800 && point < 0xdc00) {
                if (!text_.substr(at_).starts_with("\\u")) fail("half of a surrogate pair");
                at_ += 2;
                const char32_t low = hex4();
                if (low < 0xdc00 || low >= 0xe000) fail("half of a surrogate pair");
                point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
            }
            append_utf8(point, scratch);
            return;
        }
        default:
            fail("an escape that JSON does not have");
    }
}

char32_t JsonStream::hex4() {
    std::uint32_t value = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() < 4 || error != std::errc() || end != digits.data() + 4)
        fail("an escape that JSON does not have");
    at_ += 4;
    return value;
}

std::string_view JsonStream::number_text() {
    skip_space();
    const std::size_t begin = at_;
    const auto digits = [this] {
        const std::size_t first = at_;
        while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
        if (at_ == first) fail("a number without digits");
        return at_ - first;
    };
    const auto take = [this](char c) {
        const bool is_there = at_ < text_.size() && text_[at_] == c;
        at_ += is_there ? 1 : 0;
        return is_there;
    };
    take('-');
    const bool begins_with_zero = at_ < text_.size() && text_[at_] == '0';
    if (digits() > 1 && begins_with_zero) fail("a number with a leading zero");
    if (take('.')) digits();
    if (take('e') || take('E')) {
        if (!take('+')) take('-');
        digits();
    }
    return text_.substr(begin, at_ - begin);
}

std::int64_t JsonStream::integer() {
    const std::string_view text = number_text();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) fail("a number that is no integer");
    return value;
}

double JsonStream::number() {
    const std::string_view text = number_text();
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) fail("a number out of range");
    return value;
}

void JsonStream::literal() {
    for (const std::string_view word : {"true", "false", "null"}) {
        if (!text_.substr(at_).starts_with(word)) continue;
        at_ += word.size();
        return;
    }
    fail("not JSON");
}

std::string_view JsonStream::raw_value() {
    skip_space();
    const std::size_t begin = at_;
    std::string open;  // the brackets that close what is open, innermost last
    for (;;) {
        // One value, or the opening of one.
        switch (peek()) {
            case Kind::Object:
            case Kind::Array:
                if (open.size() == kMaxDepth) fail("JSON that is nested too deeply");
                open += text_[at_] == '{' ? '}' : ']';
                ++at_;
                is_first_ = true;
                break;
            case Kind::String:
                static_cast<void>(string());
                break;
            case Kind::Number:
                static_cast<void>(number_text());
                break;
            case Kind::Boolean:
            case Kind::Null:
                literal();
                break;
        }
        // Out of what ends here, and on to the next value.
        while (!open.empty() && !(open.back() == '}' ? next_key().has_value() : next_element())) open.pop_back();
        if (open.empty()) return text_.substr(begin, at_ - begin);
    }
}

void JsonStream::end() {
    skip_space();
    if (at_ != text_.size()) fail("something behind the end of the JSON");
}

}  // namespace slipstream
