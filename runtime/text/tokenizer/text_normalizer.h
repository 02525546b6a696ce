// Rewriting of text before it is cut into words: SentencePiece's rules, and the "normalizer" of a tokenizer.json.
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

// The normalisation rules of a SentencePiece model, "precompiled_charsmap": strings and what replaces them. The file
// holds a double-array trie (units of Darts-clone, 32 bits: its value, or label, offset and "has a leaf") and behind it
// the replacements, each ended by a zero byte (google/sentencepiece, src/normalizer.cc).
//
// Every step through the trie is range-checked: a broken one leads nowhere, never out of bounds.

/// What rules may make of a text: those of published models lengthen no character more than elevenfold, and a file must
/// not make gigabytes of a line.
[[nodiscard]] constexpr std::size_t max_normalised_bytes(std::size_t text_bytes) {
    return 64 * text_bytes + 4096;
}
/// Throws RequestError where a normalised text has more than `max_bytes`.
void check_growth(std::size_t bytes, std::size_t max_bytes);

class PrecompiledCharsmap {
public:
    /// Which rule of those that match at a place: SentencePiece takes the longest, spm_precompiled (the tokenizers
    /// package) the shortest.
    enum class Rule : std::uint8_t { Longest, Shortest };
    struct Match {
        std::size_t length;            // bytes of the text, at least 1
        std::string_view replacement;  // may be empty
    };

    PrecompiledCharsmap() = default;
    /// Throws FormatError naming the file where `blob` cannot be one.
    PrecompiledCharsmap(std::string_view blob, std::string_view name);

    [[nodiscard]] bool empty() const { return units_.empty(); }
    /// The rule that applies at the beginning of `text`.
    [[nodiscard]] std::optional<Match> match(std::string_view text, Rule rule) const;

    /// All of `text`, valid UTF-8, as the tokenizers package does it: grapheme by grapheme; one of less than six bytes
    /// by the rule for its beginning, any other character by character. Throws RequestError beyond `max_bytes`. Carries
    /// `marks`, unless null.
    [[nodiscard]] std::string replace_graphemes(std::string_view text, std::size_t max_bytes, MarkCarrier* marks) const;

private:
    std::vector<std::uint32_t> units_;
    std::string replacements_;
};

// Rewrites text before it is cut into words, as the "normalizer" of a tokenizer.json describes it: steps in sequence,
// each over the whole text. Unicode forms by utf8proc, run by run of characters beyond ASCII; where quick-check ranges
// show that nothing can change, text is left alone.

enum class UnicodeForm : std::uint8_t { Nfc, Nfd, Nfkc, Nfkd };

/// In front of every text that is not empty.
struct PrependStep {
    std::string text;
};
/// Each match becomes `content`. A literal is found without the pattern.
struct ReplaceStep {
    std::variant<std::string, TextPattern> what;  // a literal is not empty
    std::string content;
};
struct LowercaseStep {};
/// White space at the ends goes.
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

    /// `text` is valid UTF-8, with the marks `said`. Nothing is put before a text that is PieceStart::Inside.
    [[nodiscard]] MarkedText normalise(std::string_view text, SaidBytes said, PieceStart start,
                                       const std::atomic<bool>* cancel = nullptr) const;

private:
    std::vector<NormalizerStep> steps_;
};

/// Replaces every `what`, not empty, by `content`. Throws RequestError beyond `max_bytes`. Carries `marks`, unless
/// null.
[[nodiscard]] std::string replace_literal(std::string_view text, std::string_view what, std::string_view content,
                                          std::size_t max_bytes, MarkCarrier* marks = nullptr);

/// Returns `text`, valid UTF-8, in a Unicode normalisation form. Carries `marks`, unless null. Throws Interrupted, as
/// normalise() does.
[[nodiscard]] std::string to_unicode_form(std::string_view text, UnicodeForm form,
                                          const std::atomic<bool>* cancel = nullptr, MarkCarrier* marks = nullptr);

}  // namespace slipstream
