// Rewriting of text before it is cut into words: the rules of SentencePiece, and the "normalizer" of a tokenizer.json.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/text/marked_text.h"
#include "runtime/text/tokenizer/pre_tokenizer.h"
#include "runtime/text/tokenizer/text_pattern.h"

namespace slipstream {

// The normalisation rules of a SentencePiece model, "precompiled_charsmap": strings and their replacements. The file
// holds the size of a trie, the trie (a double array of 32-bit units as Darts-clone writes it; a unit is a value, or a
// label, an offset and a flag "has a leaf"), and after it the replacements, each ended by a zero byte
// (google/sentencepiece, src/normalizer.cc).
//
// Each step through the trie is range-checked: in a broken trie, a search ends without a match and never reads out of
// bounds.

/// Returns the most bytes that normalising may make of a text. The rules of published models make a character at most
/// eleven times as long; a hostile file must not make gigabytes of a line.
[[nodiscard]] constexpr std::size_t max_normalised_bytes(std::size_t text_bytes) {
    return 64 * text_bytes + 4096;
}
/// Throws RequestError if the `bytes` of a normalised text are more than `max_bytes`.
void check_growth(std::size_t bytes, std::size_t max_bytes);

class PrecompiledCharsmap {
public:
    /// Which of the rules that match at a position applies: the longest in SentencePiece, the shortest in
    /// spm_precompiled (of the tokenizers package).
    enum class Rule : std::uint8_t { Longest, Shortest };
    struct Match {
        std::size_t length;            // bytes of the text, at least 1
        std::string_view replacement;  // may be empty
    };

    PrecompiledCharsmap() = default;
    /// `blob` is the precompiled_charsmap of a file. Throws FormatError, which names the file `name`, if its sizes are
    /// impossible.
    PrecompiledCharsmap(std::string_view blob, std::string_view name);

    [[nodiscard]] bool empty() const { return units_.empty(); }
    /// Returns the rule that applies at the beginning of `text`, or nullopt if none matches. The replacement is valid
    /// as long as the map.
    [[nodiscard]] std::optional<Match> match(std::string_view text, Rule rule) const;

    /// Returns `text`, which must be valid UTF-8, with the rules applied as the tokenizers package does: grapheme by
    /// grapheme. A grapheme of at most five bytes is replaced as a whole if a rule matches at its beginning; any other
    /// is replaced character by character. Reports replacements to `marks` unless it is null. Throws RequestError if
    /// the result is longer than `max_bytes`.
    [[nodiscard]] std::string replace_graphemes(std::string_view text, std::size_t max_bytes, MarkCarrier* marks) const;

private:
    std::vector<std::uint32_t> units_;
    std::string replacements_;
};

// Rewrites text before it is cut into words, as the "normalizer" of a tokenizer.json describes: a sequence of steps,
// each over the whole text. Unicode forms are computed by utf8proc, one run of non-ASCII characters at a time; a run
// that cannot change, as a table of quick-check ranges shows, is copied.

enum class UnicodeForm : std::uint8_t { Nfc, Nfd, Nfkc, Nfkd };

/// Puts `text` at the beginning of every text that is not empty, unless the text is PieceStart::Inside.
struct PrependStep {
    std::string text;
};
/// Replaces each match of `what` by `content`. A literal is searched for without the regex library.
struct ReplaceStep {
    std::variant<std::string, TextPattern> what;  // a literal must not be empty
    std::string content;
};
struct LowercaseStep {};
/// Removes white space at the left end, the right end, or both.
struct StripStep {
    enum class Ends : std::uint8_t { Left, Right, Both };
    Ends ends = Ends::Both;
};
struct CharsmapStep {
    PrecompiledCharsmap map;
};

using NormalizerStep = std::variant<UnicodeForm, PrependStep, ReplaceStep, LowercaseStep, StripStep, CharsmapStep>;

class TextNormalizer {
public:
    TextNormalizer() = default;
    explicit TextNormalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

    /// Returns `text`, which must be valid UTF-8, after all steps, with the marks `said` carried along. If `start` is
    /// PieceStart::Inside, PrependStep does nothing. Throws RequestError if the text grows too long or a pattern needs
    /// too many steps, Interrupted if *cancel turned true.
    [[nodiscard]] MarkedText normalise(std::string_view text, SaidBytes said, PieceStart start,
                                       const std::atomic<bool>* cancel = nullptr) const;

private:
    std::vector<NormalizerStep> steps_;
};

/// Returns `text` with each `what`, which must not be empty, replaced by `content`. Reports replacements to `marks`
/// unless it is null. Throws RequestError if the result is longer than `max_bytes`.
[[nodiscard]] std::string replace_literal(std::string_view text, std::string_view what, std::string_view content,
                                          std::size_t max_bytes, MarkCarrier* marks = nullptr);

/// Returns `text`, which must be valid UTF-8, in a Unicode normalisation form. Reports replacements to `marks` unless
/// it is null. Throws Interrupted if *cancel turned true.
[[nodiscard]] std::string to_unicode_form(std::string_view text, UnicodeForm form,
                                          const std::atomic<bool>* cancel = nullptr, MarkCarrier* marks = nullptr);

}  // namespace slipstream
