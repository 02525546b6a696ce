// Text that knows which of its bytes people said: a prompt is markup of the template's and content of messages, and a
// control token may only be made of the first. Templates keep the marks while they render (chat/text_builder.h),
// tokenizers while they rewrite a text (MarkCarrier), so that the marks are at hand where tokens are looked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace slipstream {

/// Bytes from `begin` to before `end`.
struct TextSpan {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool operator==(const TextSpan&) const = default;
};

/// Those of `spans`, ascending and apart from each other, that end after `byte`.
[[nodiscard]] std::span<const TextSpan> spans_after(std::span<const TextSpan> spans, std::size_t byte);
/// Appends a span that begins at or after the end of the last one; spans that touch become one, empty ones none.
void append_span(std::vector<TextSpan>& spans, TextSpan span);

enum class Origin : std::uint8_t { Template, Said };

/// The marks of a text, or of a part of it; they belong to the caller.
class SaidBytes {
public:
    SaidBytes() = default;  // nothing was said
    /// `spans` are ascending, apart from each other, none empty; the part begins at byte `begin` of their text.
    explicit SaidBytes(std::span<const TextSpan> spans, std::size_t begin = 0) : spans_(spans), begin_(begin) {}

    /// Whether any byte of `span` was said.
    [[nodiscard]] bool any_in(TextSpan span) const;
    /// Whether all bytes of `span`, not empty, were said.
    [[nodiscard]] bool all_in(TextSpan span) const;
    /// Of the part that begins at byte `begin` of this one.
    [[nodiscard]] SaidBytes from(std::size_t begin) const { return SaidBytes(spans_, begin_ + begin); }
    /// The marks of the first `size` bytes, counted from their beginning.
    [[nodiscard]] std::vector<TextSpan> spans(std::size_t size) const;

private:
    std::span<const TextSpan> spans_;
    std::size_t begin_ = 0;
};

struct MarkedText {
    std::string bytes;
    std::vector<TextSpan> said;  // ascending, apart from each other, none empty

    /// Whether any byte of `span` was said.
    [[nodiscard]] bool is_said_in(TextSpan span) const { return SaidBytes(said).any_in(span); }
    [[nodiscard]] Origin origin_at(std::size_t byte) const {
        return is_said_in({byte, byte + 1}) ? Origin::Said : Origin::Template;
    }
};

/// Carries the marks of a text through a step that rewrites it. The step reports each replacement, in order; all bytes
/// between replacements are copied. What is made of any said byte is said.
class MarkCarrier {
public:
    /// `said` are the marks of the step's input.
    explicit MarkCarrier(SaidBytes said) : said_(said) {}

    /// Whether `span` of the input has bytes that were said and others.
    [[nodiscard]] bool is_mixed(TextSpan span) const;
    /// Bytes `from` of the input became bytes `to` of the output; either may be empty. What is put into the text takes
    /// the mark of the byte that follows it.
    void replace(TextSpan from, TextSpan to);
    /// The marks of the output: `size` bytes, made of `input_size` bytes.
    [[nodiscard]] std::vector<TextSpan> take(std::size_t input_size, std::size_t size);

private:
    void copy_to(std::size_t input_end);

    SaidBytes said_;
    std::vector<TextSpan> out_;
    std::size_t from_ = 0, to_ = 0;  // what was reported so far ends here, in the input and in the output
};

}  // namespace slipstream
