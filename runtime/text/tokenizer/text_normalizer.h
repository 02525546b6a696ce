// Rewrites text before it is cut into words, as the "normalizer" of a tokenizer.json describes it: steps in sequence,
// each over the whole text. Unicode forms by utf8proc, run by run of characters beyond ASCII; where quick-check ranges
// show that nothing can change, text is left alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/text/tokenizer/pre_tokenizer.h"
#include "runtime/text/tokenizer/precompiled_charsmap.h"
#include "runtime/text/tokenizer/text_pattern.h"

namespace slipstream {

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

    /// Whether every text stays as it is.
    [[nodiscard]] bool is_identity() const { return steps_.empty(); }
    /// `text` is valid UTF-8. Where it is PieceStart::Inside nothing is put in front.
    [[nodiscard]] std::string normalise(std::string_view text, PieceStart start) const;

private:
    std::vector<NormalizerStep> steps_;
};

/// Every `what`, not empty, becomes `content`. Throws RequestError beyond `max_bytes`.
[[nodiscard]] std::string replace_literal(std::string_view text, std::string_view what, std::string_view content,
                                          std::size_t max_bytes);

/// `text`, valid UTF-8, in a Unicode normalisation form.
[[nodiscard]] std::string to_unicode_form(std::string_view text, UnicodeForm form);

}  // namespace slipstream
