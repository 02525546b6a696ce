// Cuts normalised text into words, as the "pre_tokenizer" of a tokenizer.json describes: a sequence of steps, each of
// which splits or rewrites the pieces of the step before. Merging never crosses the border of a word.
//
// Each piece passes through all remaining steps before the next piece does (depth first), so that memory does not grow
// with the number of pieces. Besides its text, a piece has a shape of the same length in bytes: the text with the
// characters replaced that are too new for the regex library (text_pattern.h). Patterns are matched in the shape; words
// are cut from the text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/text/tokenizer/text_pattern.h"

namespace slipstream {

/// The position of a piece in the text. It decides whether a space is put at the beginning of the piece.
enum class PieceStart : std::uint8_t {
    OfText,  // at the very beginning of the text
    OfPart,  // a part that follows a special token, or that an earlier step cut off
    Inside,  // a part that follows bytes that are not UTF-8: no space is put at its beginning
};

enum class SplitBehavior : std::uint8_t { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

/// What the matches of a split pattern are: the delimiters between words, or the words.
enum class SplitMatches : std::uint8_t { Delimiters, Words };

struct SplitStep {
    TextPattern pattern;
    SplitBehavior behavior = SplitBehavior::Isolated;
    SplitMatches matches = SplitMatches::Delimiters;
};

/// Puts a space at the beginning of a piece that does not begin with one.
struct PrefixSpaceStep {};

/// Writes a piece in the byte alphabet (byte_spellings.h), for the steps that follow. Words are converted back to bytes
/// at the end.
struct ByteAlphabetStep {};

/// Replaces spaces by `replacement`, and puts a `replacement` at the beginning of a piece that begins neither with a
/// space nor with a `replacement`, as `prepend` says.
struct MetaspaceStep {
    enum class Prepend : std::uint8_t { Always, First, Never };
    std::string replacement;  // one character, UTF-8
    Prepend prepend = Prepend::Always;
};

using PreTokenizerStep = std::variant<SplitStep, PrefixSpaceStep, ByteAlphabetStep, MetaspaceStep>;

/// Receives the words of a text in order.
class WordSink {
public:
    virtual ~WordSink() = default;
    /// Called once for each word. `word` is not empty and is valid during the call only.
    virtual void on_word(std::string_view word) = 0;
};

class PreTokenizer {
public:
    explicit PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {}

    /// One thread's state for cutting texts into words; its scratch space is kept from text to text.
    class Run {
    public:
        /// `pre_tokenizer` must outlive the run and must not be moved.
        explicit Run(const PreTokenizer& pre_tokenizer);
        /// Calls sink.on_word() for each word of `text`, in order. `text` must be valid UTF-8. Throws RequestError if a
        /// pattern needs too many steps (TextPattern).
        void words(std::string_view text, PieceStart start, WordSink& sink);

    private:
        struct Piece {
            std::string_view text, shape;
            PieceStart start;
        };
        struct Scratch {
            std::optional<TextPattern::Search> search;
            std::string text, shape;  // the piece as this step has rewritten it
        };
        void pass(std::size_t step, const Piece& piece);
        void split(std::size_t step, const Piece& piece, const SplitStep& how);
        void rewrite(std::size_t step, const Piece& piece, const MetaspaceStep& how);
        void pass_rewritten(std::size_t step, const Piece& piece);

        const PreTokenizer& pre_tokenizer_;
        std::vector<Scratch> scratch_;  // [step]
        bool ends_in_alphabet_ = false;
        std::string unspelt_;
        WordSink* sink_ = nullptr;
    };

private:
    std::vector<PreTokenizerStep> steps_;
};

}  // namespace slipstream
