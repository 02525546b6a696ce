// Text under a limit, so that nothing is built first and measured later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace slipstream::jinja {

class TextBuilder {
public:
    explicit TextBuilder(std::size_t max_bytes) : max_bytes_(max_bytes) {}

    /// These throw TemplateError where the text would grow beyond the limit.
    void append(std::string_view piece) {
        check(piece.size());
        text_.append(piece);
    }
    void append(char c) {
        check(1);
        text_.push_back(c);
    }
    /// `count` times; a negative count is none.
    void repeat(std::int64_t count, std::string_view piece);

    [[nodiscard]] std::size_t size() const { return text_.size(); }
    [[nodiscard]] const std::string& text() const { return text_; }
    [[nodiscard]] std::string take() { return std::exchange(text_, {}); }

private:
    void check(std::size_t more) const {
        if (more > max_bytes_ - text_.size()) too_long();
    }
    [[noreturn]] void too_long() const;

    std::size_t max_bytes_;
    std::string text_;
};

}  // namespace slipstream::jinja
