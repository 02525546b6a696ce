// Cuts normalised text into words, as the "pre_tokenizer" of a tokenizer.json describes it: steps, each of which takes
// the pieces of the step before apart or rewrites them. Merging never crosses the border of a word.
//
// Pieces run through the steps depth first, one at a time, so that memory does not grow with their number. Beside its
// text each piece carries a shape of the same length: the text with characters replaced that the regex library is too
// old for (text_pattern.h). Patterns look at the shape, words come out of the text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/text/tokenizer/text_pattern.h"

namespace slipstream {

/// Where a piece of text stands; it decides whether a space is put in front of it.
enum class PieceStart : std::uint8_t {
    OfText,  // at the very beginning
    OfPart,  // behind a special token, or cut off by an earlier step
    Inside,  // behind bytes that are no characters: nothing is put in front
};

enum class SplitBehavior : std::uint8_t { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

/// Which parts of the text the pattern's matches are.
enum class SplitMatches : std::uint8_t { Delimiters, Words };

struct SplitStep {
    TextPattern pattern;
    SplitBehavior behavior = SplitBehavior::Isolated;
    SplitMatches matches = SplitMatches::Delimiters;
};

/// A space in front of a piece that does not begin with one.
struct PrefixSpaceStep {};

/// Spells bytes in the byte alphabet, for the steps behind it; the words come out as bytes again.
struct ByteAlphabetStep {};

/// Spaces become `replacement`, and one is put in front of a piece that does not begin with one.
struct MetaspaceStep {
    enum class Prepend : std::uint8_t { Always, First, Never };
    std::string replacement;  // one character
    Prepend prepend = Prepend::Always;
};

using PreTokenizerStep = std::variant<SplitStep, PrefixSpaceStep, ByteAlphabetStep, MetaspaceStep>;

/// Takes the words as they come.
class WordSink {
public:
    virtual ~WordSink() = default;
    /// `word` is not empty, and alive during the call.
    virtual void on_word(std::string_view word) = 0;
};

class PreTokenizer {
public:
    explicit PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {}

    /// Scratch space of one thread.
    class Run {
    public:
        /// `pre_tokenizer` stays alive and where it is.
        explicit Run(const PreTokenizer& pre_tokenizer);
        /// Gives the words of `text`, valid UTF-8, to `sink`, in order.
        void words(std::string_view text, PieceStart start, WordSink& sink);

    private:
        struct Piece {
            std::string_view text, shape;
            PieceStart start;
        };
        struct Scratch {
            std::optional<TextPattern::Search> search;
            std::string text, shape;  // of the piece that the step has rewritten
        };
        void pass(std::size_t step, const Piece& piece);
        void split(std::size_t step, const Piece& piece, const SplitStep& how);
        void rewrite(std::size_t step, const Piece& piece, const MetaspaceStep& how);
        void pass_rewritten(std::size_t step, const Piece& piece);

        const PreTokenizer& pre_tokenizer_;
        std::vector<Scratch> scratch_;  // by step
        bool ends_in_alphabet_ = false;
        std::string unspelt_;
        WordSink* sink_ = nullptr;
    };

private:
    std::vector<PreTokenizerStep> steps_;
};

}  // namespace slipstream
