// Byte-pair merging as SentencePiece defines it (Sennrich et al. 2016, arXiv 1508.07909, with Kudo and Richardson 2018,
// arXiv 1808.06226, section 3.2: a heap of candidate merges over a linked list of symbols, O(n log n)).
//
// The text begins as characters. Of all neighbours whose concatenation is a piece, the pair with the highest score
// merges, the leftmost of equals, until none is left. What is then no piece becomes byte tokens, or the unknown token
// where the vocabulary lacks the byte. The merger owns the piece index and nothing of the text; scratch space is the
// caller's, one a thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/text/token_id.h"
#include "runtime/text/tokenizer/sentencepiece_model.h"

namespace slipstream {

class BpeMerger {
public:
    struct Symbol {
        std::int32_t previous, next;  // -1: none
        std::uint32_t begin, length;  // in the word; length 0: merged into its left neighbour
        TokenId id;                   // -1: no piece
    };
    struct Merge {
        float score;
        std::int32_t left, right;  // symbols
        std::uint32_t length;      // of both together, when this merge was found; tells a stale entry
        TokenId id;
    };
    /// Grows to the longest word and stays.
    struct Scratch {
        std::vector<Symbol> symbols;
        std::vector<Merge> heap;
        std::unordered_map<std::string_view, std::uint32_t> unused_splits;  // unused piece -> length of its left half
    };

    /// `model` is validated and stays alive and unchanged.
    explicit BpeMerger(const SentencePieceModel& model);

    /// Appends the ids of `word` (less than 2^31 bytes) to `out`. Not-well-formed bytes are characters of one byte.
    void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

    /// Whether no piece holds a space after another character, so that no merge can ever cross the beginning of a word.
    [[nodiscard]] bool words_are_independent() const { return words_are_independent_; }

private:
    void push_merge(std::string_view word, std::int32_t left, std::int32_t right, Scratch& scratch) const;
    void append(std::string_view piece, TokenId id, const Scratch& scratch, std::vector<TokenId>& out) const;
    [[nodiscard]] TokenId find(std::string_view piece) const;  // -1: none

    const SentencePieceModel& model_;
    std::unordered_map<std::string_view, TokenId> ids_;  // pieces that text can become: normal, user-defined, unused
    std::array<TokenId, 256> byte_ids_{};                // -1: none
    bool words_are_independent_ = true;
};

}  // namespace slipstream
