// Text that knows which of its bytes people said: a prompt is markup of the template's and content of messages, and a
// control token may only be made of the first. TextBuilder keeps the marks through all that is done to texts, under a
// limit and at the expense of an account, so that nothing is built first and measured later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace slipstream {

/// Bytes from `begin` to before `end`.
struct TextSpan {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool operator==(const TextSpan&) const = default;
};

enum class Origin : std::uint8_t { Template, Said };

struct MarkedText {
    std::string bytes;
    std::vector<TextSpan> said;  // ascending, apart from each other, none empty

    /// Whether any byte of `span` was said.
    [[nodiscard]] bool is_said_in(TextSpan span) const;
    [[nodiscard]] Origin origin_at(std::size_t byte) const {
        return is_said_in({byte, byte + 1}) ? Origin::Said : Origin::Template;
    }
};

namespace jinja {

/// Bytes in use and how many may be; what is taken is given back.
class Account {
public:
    explicit Account(std::size_t max_bytes) : max_bytes_(max_bytes) {}
    /// Throws TemplateError where that is more than is left.
    void take(std::size_t bytes) {
        if (bytes > max_bytes_ - live_bytes_) overdrawn();
        live_bytes_ += bytes;
    }
    void give_back(std::size_t bytes) { live_bytes_ -= bytes; }
    /// Throws where take() would, and takes nothing.
    void check(std::size_t bytes) const {
        if (bytes > max_bytes_ - live_bytes_) overdrawn();
    }

private:
    [[noreturn]] void overdrawn() const;

    std::size_t max_bytes_;
    std::size_t live_bytes_ = 0;
};

class TextBuilder {
public:
    TextBuilder(Account& account, std::size_t max_bytes) : account_(account), max_bytes_(max_bytes) {}
    TextBuilder(const TextBuilder&) = delete;
    TextBuilder& operator=(const TextBuilder&) = delete;
    ~TextBuilder() { account_.give_back(text_bytes_ + mark_bytes_); }

    /// These throw TemplateError where the text would grow beyond the limit, or the account's.
    void append(std::string_view piece) {
        make_room(piece.size());
        text_.bytes.append(piece);
    }
    void append(char c) {
        make_room(1);
        text_.bytes.push_back(c);
    }
    void append(std::string_view piece, Origin origin) {
        append(piece);
        if (origin == Origin::Said && !piece.empty()) mark({text_.bytes.size() - piece.size(), text_.bytes.size()});
    }
    void append(const MarkedText& text) { append(text, {0, text.bytes.size()}); }
    /// That part of it, with its marks.
    void append(const MarkedText& text, TextSpan part);
    /// `count` times; a negative count is none.
    void repeat(std::int64_t count, const MarkedText& text);

    [[nodiscard]] const MarkedText& text() const { return text_; }
    [[nodiscard]] MarkedText take() { return std::exchange(text_, {}); }

private:
    void make_room(std::size_t more) {
        if (more > text_bytes_ - text_.bytes.size()) grow(more);
    }
    void grow(std::size_t more);
    void mark(TextSpan span);

    Account& account_;
    std::size_t max_bytes_;
    std::size_t text_bytes_ = 0;  // taken from the account: the room there is
    std::size_t mark_bytes_ = 0;
    MarkedText text_;
};

}  // namespace jinja

}  // namespace slipstream
