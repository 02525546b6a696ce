// A text that knows which of its bytes were said. A prompt consists of markup that a template writes and of the
// contents of messages, which people and tools said; control tokens may be made of markup only. Templates keep the
// marks while they render (chat/text_builder.h), tokenizers while they rewrite a text (MarkCarrier), so that the marks
// are known where tokens are searched for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace slipstream {

/// The bytes [begin, end) of a text.
struct TextSpan {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool operator==(const TextSpan&) const = default;
};

/// Returns those of `spans` that end after the byte position `byte`. `spans` must be ascending and disjoint; the result
/// is a part of it, not a copy.
[[nodiscard]] std::span<const TextSpan> spans_after(std::span<const TextSpan> spans, std::size_t byte);
/// Appends `span` to `spans`. `span` must begin at or after the end of the last of `spans`. If it touches the last one,
/// it extends that one; an empty span is not added.
void append_span(std::vector<TextSpan>& spans, TextSpan span);

/// Who wrote a byte: the template, or the author of a message.
enum class Origin : std::uint8_t { Template, Said };

/// Tells which bytes of a text, or of a part of a text, were said (came from a message, not from the template). This is
/// a view: the caller owns the spans, which must outlive this object.
class SaidBytes {
public:
    SaidBytes() = default;  // no byte came from a message
    /// `spans` must be ascending, disjoint and not empty; they count bytes of the whole text. The part begins at byte
    /// `begin` of that text.
    explicit SaidBytes(std::span<const TextSpan> spans, std::size_t begin = 0) : spans_(spans), begin_(begin) {}

    /// Returns whether any byte of `span` was said (came from a message, not from the template).
    [[nodiscard]] bool any_in(TextSpan span) const;
    /// Returns whether all bytes of `span`, which must not be empty, were said.
    [[nodiscard]] bool all_in(TextSpan span) const;
    /// Returns the view of the part that begins at byte `begin` of this part; it refers to the same spans.
    [[nodiscard]] SaidBytes from(std::size_t begin) const { return SaidBytes(spans_, begin_ + begin); }
    /// Returns the spans of bytes that were said (came from a message) among the first `size` bytes of this part, as
    /// byte positions that count from the beginning of this part.
    [[nodiscard]] std::vector<TextSpan> spans(std::size_t size) const;

private:
    std::span<const TextSpan> spans_;
    std::size_t begin_ = 0;
};

/// A text, and the spans of its bytes that were said: that came from a message, not from the template.
struct MarkedText {
    std::string bytes;
    std::vector<TextSpan> said;  // ascending, disjoint, none empty

    /// Returns whether any byte of `span` was said.
    [[nodiscard]] bool is_said_in(TextSpan span) const { return SaidBytes(said).any_in(span); }
    [[nodiscard]] Origin origin_at(std::size_t byte) const {
        return is_said_in({byte, byte + 1}) ? Origin::Said : Origin::Template;
    }
};

/// Carries the marks of a text through a step that rewrites the text. The step reports each replacement, from left to
/// right; all bytes between replacements must be copied unchanged. The result of a replacement counts as said if any
/// byte of its input was said.
class MarkCarrier {
public:
    /// `said` tells which bytes of the step's input were said; its spans must outlive the carrier.
    explicit MarkCarrier(SaidBytes said) : said_(said) {}

    /// Returns whether `span` of the input contains both bytes that were said and bytes that were not.
    [[nodiscard]] bool is_mixed(TextSpan span) const;
    /// Reports that bytes `from` of the input became bytes `to` of the output; either span may be empty. If `from` is
    /// empty, the inserted bytes get the mark of the input byte that follows them. Calls must be in ascending order of
    /// `from`.
    void replace(TextSpan from, TextSpan to);
    /// Returns the marks of the output, which has `size` bytes and was made of `input_size` bytes. Call once, after the
    /// last replacement.
    [[nodiscard]] std::vector<TextSpan> take(std::size_t input_size, std::size_t size);

private:
    void copy_to(std::size_t input_end);

    SaidBytes said_;
    std::vector<TextSpan> out_;
    std::size_t from_ = 0, to_ = 0;  // end of what was reported so far, in the input and in the output
};

}  // namespace slipstream
