// The normalisation rules of a SentencePiece model, "precompiled_charsmap": strings and what replaces them. The file
// holds a double-array trie (units of Darts-clone, 32 bits: its value, or label, offset and "has a leaf") and behind it
// the replacements, each ended by a zero byte (google/sentencepiece, src/normalizer.cc).
//
// Every step through the trie is range-checked: a broken one leads nowhere, never out of bounds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream {

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
    /// by the rule for its beginning, any other character by character. Throws RequestError beyond `max_bytes`.
    [[nodiscard]] std::string replace_graphemes(std::string_view text, std::size_t max_bytes) const;

private:
    std::vector<std::uint32_t> units_;
    std::string replacements_;
};

}  // namespace slipstream
