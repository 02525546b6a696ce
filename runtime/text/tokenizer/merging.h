// How words become pieces: merging of pairs by rank, and the two algorithms of SentencePiece, merging by score and the
// best cut by scores.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/base/indexed.h"
#include "runtime/text/token_id.h"
#include "runtime/text/tokenizer/sentencepiece_model.h"

namespace slipstream {

// The merges of a byte-pair vocabulary: (left id, right id) -> rank and resulting id. Lower ranks merge first.
// Open addressing in one array of 16-byte entries, so that a look-up is one or two cache lines.

class MergeTable {
public:
    struct Merge {
        std::uint32_t rank;
        TokenId id;
    };
    static constexpr std::uint32_t kNoRank = UINT32_MAX;

    MergeTable() = default;
    explicit MergeTable(std::size_t n_merges);

    /// Sets the merge of a pair; a later one replaces an earlier one, as in the tokenizers package. Ids are not
    /// negative.
    void set(TokenId left, TokenId right, Merge merge);

    /// rank == kNoRank where the pair does not merge.
    [[nodiscard]] Merge find(TokenId left, TokenId right) const {
        const std::uint64_t key = key_of(left, right);
        for (std::size_t at = slot_of(key); entries_[at].key != kEmpty; at = (at + 1) & mask_)
            if (entries_[at].key == key) return entries_[at].merge;
        return {kNoRank, -1};
    }
    [[nodiscard]] std::size_t size() const { return n_merges_; }

private:
    static constexpr std::uint64_t kEmpty = UINT64_MAX;
    struct Entry {
        std::uint64_t key = kEmpty;
        Merge merge{kNoRank, -1};
    };
    static std::uint64_t key_of(TokenId left, TokenId right) {
        return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
    }
    [[nodiscard]] std::size_t slot_of(std::uint64_t key) const {
        const std::uint64_t mixed = key * 0x9e3779b97f4a7c15U;  // both ids reach the upper bits
        return static_cast<std::size_t>((mixed ^ mixed >> 32) * 0xbf58476d1ce4e5b9U >> shift_);
    }
    void grow();

    std::vector<Entry> entries_ = std::vector<Entry>(2);  // a power of two
    std::size_t mask_ = 1;
    int shift_ = 63;
    std::size_t n_merges_ = 0;
};

// Byte-pair merging by a table of ranked pairs (Sennrich et al. 2016, arXiv 1508.07909): of all neighbours that merge,
// the pair of the lowest rank does, the leftmost of equals, until none is left.
//
// Short words, nearly all, are searched linearly: their ranks fit a few cache lines. Longer ones keep a heap of (rank,
// place) over a linked list, O(n log n); an entry whose place has another rank by now is stale. Both give the same ids.

class PairMerger {
public:
    struct Scratch {
        Indexed<TokenId> ids;
        std::vector<std::uint32_t> ranks;           // of each symbol with the next one
        Indexed<TokenId> merged;                    // what the two become
        std::vector<std::uint32_t> previous, next;  // long words
        std::vector<std::uint64_t> heap;            // rank << 32 | place
        const std::atomic<bool>* cancel = nullptr;  // turns true: throws Interrupted
    };

    explicit PairMerger(MergeTable table) : table_(std::move(table)) {}

    /// Appends what `symbols` (less than 2^31) merge to.
    void merge(std::span<const TokenId> symbols, Scratch& scratch, std::vector<TokenId>& out) const;

    [[nodiscard]] const MergeTable& table() const { return table_; }

private:
    void merge_short(Scratch& scratch) const;
    void merge_long(Scratch& scratch, std::vector<TokenId>& out) const;

    MergeTable table_;
};

// Byte-pair merging as SentencePiece defines it (Sennrich et al. 2016, arXiv 1508.07909, with Kudo and Richardson 2018,
// arXiv 1808.06226, section 3.2: a heap of candidate merges over a linked list of symbols, O(n log n)).
//
// The text begins as characters. Of all neighbours whose concatenation is a piece, the pair with the highest score
// merges, the leftmost of equals, until none is left. What is then no piece becomes byte tokens, or the unknown token
// where the vocabulary lacks the byte. The merger owns the piece index and nothing of the text; scratch space is the
// caller's, one a thread.

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
        Indexed<Symbol> symbols;
        std::vector<Merge> heap;
        std::unordered_map<std::string_view, std::uint32_t> unused_splits;  // unused piece -> length of its left half
        const std::atomic<bool>* cancel = nullptr;                          // turns true: throws Interrupted
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

// SentencePiece's unigram model (Kudo 2018, arXiv 1804.10959, section 3.1): of all ways to cut a text into pieces, the
// one whose scores (log probabilities) sum highest, by Viterbi over the ends of pieces. A character that is no piece
// may stand alone at a penalty, as unknown.
//
// Sums are rounded as the original rounds them, in float for SentencePiece and in double for the tokenizers package:
// ties and near-ties fall alike. Pieces lie in a trie whose children are contiguous and sorted. O(n x longest piece)
// time, O(n) memory.

class UnigramSegmenter {
public:
    enum class Sums : std::uint8_t { Float, Double };
    struct Piece {
        std::string_view text;  // not empty
        double score;
        TokenId id;
        /// Part of the trie, but never chosen (kind Unused).
        enum class Use : std::uint8_t { Chosen, Never } use = Use::Chosen;
    };
    struct Node {
        double score = 0;          // of the best way that ends here
        std::uint32_t length = 0;  // of its last piece; 0: not reached yet
        TokenId id = -1;           // of its last piece; kUnknown
    };
    /// Grows to the longest text and stays.
    struct Scratch {
        std::vector<Node> ends;                     // [bytes + 1]
        const std::atomic<bool>* cancel = nullptr;  // turns true: throws Interrupted
    };
    struct Segment {
        std::uint32_t length;  // bytes
        TokenId id;            // kUnknown: one character that is no piece
    };
    static constexpr TokenId kUnknown = -2;

    /// Of pieces with equal texts the last wins, as in the originals' maps. `unknown_score` is what an unknown
    /// character costs. Copies nothing of the texts.
    UnigramSegmenter(std::vector<Piece> pieces, double unknown_score, Sums sums);

    /// Appends the best segments of `text` (less than 2^31 bytes), in order. Broken bytes are characters of one byte.
    void segment(std::string_view text, Scratch& scratch, std::vector<Segment>& out) const;

private:
    struct TrieNode {
        std::uint32_t first_child = 0;
        std::uint16_t n_children = 0;
        std::uint8_t label = 0;
        std::int32_t piece = -1;  // index in ids_
    };
    [[nodiscard]] const TrieNode* child(const TrieNode& node, unsigned char label) const;
    void build(std::span<const Piece> pieces);

    std::vector<TrieNode> trie_;              // children of a node side by side, by ascending label
    std::array<std::uint32_t, 256> roots_{};  // first byte -> node; 0: none
    std::vector<double> scores_;              // by piece of the trie
    std::vector<TokenId> ids_;                // -1: never chosen
    double unknown_score_;
    Sums sums_;
};

}  // namespace slipstream
