// TextBuilder builds a text with its marks (MarkedText) during a rendering. Its size is limited, and its memory is
// charged to an account before it is allocated, so that nothing too large is built first and measured later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/text/marked_text.h"

namespace slipstream {

namespace jinja {

/// Counts the bytes in use against a limit. take() and give_back() must be balanced by the caller.
class Account {
public:
    explicit Account(std::size_t max_bytes) : max_bytes_(max_bytes) {}
    /// Takes `bytes`. Throws TemplateError if fewer are left.
    void take(std::size_t bytes) {
        if (bytes > max_bytes_ - live_bytes_) overdrawn();
        live_bytes_ += bytes;
    }
    void give_back(std::size_t bytes) { live_bytes_ -= bytes; }
    /// Throws TemplateError if fewer than `bytes` bytes are left of the limit. Takes none of them.
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

    /// The functions append() and repeat() throw TemplateError if the text would exceed max_bytes or the account has no
    /// more.
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
    /// Appends the bytes `part` of `text`, with their marks.
    void append(const MarkedText& text, TextSpan part);
    /// Appends `text` `count` times; nothing if `count` is negative.
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
    std::size_t text_bytes_ = 0;  // capacity of text_.bytes as charged to the account
    std::size_t mark_bytes_ = 0;
    MarkedText text_;
};

}  // namespace jinja

}  // namespace slipstream
