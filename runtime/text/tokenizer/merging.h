// Algorithms that turn a word into token ids: merging of pairs by rank (BPE), and the two algorithms of SentencePiece,
// merging by score (BPE) and the segmentation with the highest sum of scores (unigram).
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

#include "runtime/text/token_id.h"
#include "runtime/text/tokenizer/sentencepiece_model.h"

namespace slipstream {

// The merges of a byte-pair vocabulary: a hash table from (left id, right id) to the rank of the merge and the id that
// the pair becomes. Lower ranks merge first. Open addressing in one array of 16-byte entries, so that a look-up reads
// one or two cache lines.

class MergeTable {
public:
    struct Merge {
        std::uint32_t rank;
        TokenId id;
    };
    static constexpr std::uint32_t kNoRank = UINT32_MAX;

    MergeTable() = default;
    explicit MergeTable(std::size_t n_merges);

    /// Sets the merge of the pair (left, right). If the pair already has a merge, it is replaced, as in the tokenizers
    /// package. Ids must not be negative.
    void set(TokenId left, TokenId right, Merge merge);

    /// Returns the merge of the pair (left, right). If the pair does not merge, the result has rank kNoRank and id -1.
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
        // The factors make both ids reach the upper bits, which select the slot.
        const std::uint64_t mixed = key * 0x9e3779b97f4a7c15U;
        return (mixed ^ mixed >> 32) * 0xbf58476d1ce4e5b9U >> shift_;
    }
    void grow();

    std::vector<Entry> entries_ = std::vector<Entry>(2);  // the size is a power of two
    std::size_t mask_ = 1;
    int shift_ = 63;
    std::size_t n_merges_ = 0;
};

// Byte-pair merging by a table of ranked pairs (Sennrich et al. 2016, arXiv 1508.07909): as long as any two neighbours
// can merge, the pair with the lowest rank merges, of several such pairs the leftmost.
//
// In a short word, which nearly all are, each step searches all ranks linearly: they fit into a few cache lines. A
// longer word keeps a heap of (rank, position) over a linked list, O(n log n); a heap entry is stale if the rank at its
// position has changed since. Both ways give the same ids.

class PairMerger {
public:
    struct Scratch {
        std::vector<TokenId> ids;
        std::vector<std::uint32_t> ranks;           // [symbol]: rank of the symbol's merge with the next one
        std::vector<TokenId> merged;                // [symbol]: id of the token that this merge makes
        std::vector<std::uint32_t> previous, next;  // [symbol]: linked list of symbols, for long words only
        std::vector<std::uint64_t> heap;            // rank << 32 | symbol, for long words only
        const std::atomic<bool>* cancel = nullptr;  // merging throws Interrupted soon after it turns true
    };

    explicit PairMerger(MergeTable table) : table_(std::move(table)) {}

    /// Merges `symbols`, the ids of one word, and appends the resulting ids to `out`. There must be less than 2^31
    /// symbols (CHECKed). Throws Interrupted if *scratch.cancel turned true.
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
// The symbols of a word are at first its characters. As long as two neighbours spell a piece together, the pair whose
// piece has the highest score merges, of several such pairs the leftmost. A symbol that is no piece in the end becomes
// its byte tokens, or the unknown token if the vocabulary lacks one of the bytes. The merger owns the index of pieces
// and keeps nothing of the text. The caller owns the scratch space; each thread needs its own.

class BpeMerger {
public:
    struct Symbol {
        std::int32_t previous, next;  // symbols; -1: none
        std::uint32_t begin, length;  // bytes in the word; length 0: merged into the symbol to the left
        TokenId id;                   // -1: the symbol is no piece
    };
    struct Merge {
        float score;
        std::int32_t left, right;  // symbols
        std::uint32_t length;  // bytes of both when the merge was found; the entry is stale if the length differs now
        TokenId id;
    };
    /// Scratch space of one thread. It grows to the size that the longest word needs and keeps its memory.
    struct Scratch {
        std::vector<Symbol> symbols;
        std::vector<Merge> heap;
        // Maps a piece of kind Unused to the length, in bytes, of the left half that it was last merged from.
        std::unordered_map<std::string_view, std::uint32_t> unused_splits;
        const std::atomic<bool>* cancel = nullptr;  // encode() throws Interrupted soon after it turns true
    };

    /// `model` must have passed validate() (sentencepiece_model.h) and must outlive the merger, unchanged.
    explicit BpeMerger(const SentencePieceModel& model);

    /// Appends the ids of `word` to `out`. `word` must have less than 2^31 bytes (CHECKed); each byte that is not part
    /// of well-formed UTF-8 counts as a character. Throws Interrupted if *scratch.cancel turned true.
    void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

    /// Returns whether no piece contains "▁" after another character. Then no merge crosses the beginning of a word, so
    /// words can be encoded one by one.
    [[nodiscard]] bool words_are_independent() const { return words_are_independent_; }

private:
    void push_merge(std::string_view word, std::int32_t left, std::int32_t right, Scratch& scratch) const;
    void append(std::string_view piece, TokenId id, const Scratch& scratch, std::vector<TokenId>& out) const;
    [[nodiscard]] TokenId find(std::string_view piece) const;  // -1: no piece

    const SentencePieceModel& model_;
    // Finds the pieces that merging can form (normal, user-defined and unused ones) by their text.
    std::unordered_map<std::string_view, TokenId> ids_;
    std::array<TokenId, 256> byte_ids_{};  // [byte]; -1: no byte token
    bool words_are_independent_ = true;
};

// SentencePiece's unigram model (Kudo 2018, arXiv 1804.10959, section 3.1): of all ways to cut a text into pieces,
// finds the one with the highest sum of scores (log probabilities), by Viterbi over the positions where pieces end. A
// character that is no piece can be taken as unknown, at the cost of a penalty.
//
// Sums are rounded as in the original programs, to float for SentencePiece and to double for the tokenizers package, so
// that ties and near-ties are decided as there. The pieces form a trie in which the children of a node are adjacent and
// sorted. Time is O(n x longest piece), memory O(n).

class UnigramSegmenter {
public:
    enum class Sums : std::uint8_t { Float, Double };
    struct Piece {
        std::string_view text;  // must not be empty
        double score;
        TokenId id;
        /// Whether the segmenter may choose the piece. Never: a piece of kind Unused, which is in the trie but is not
        /// chosen.
        enum class Use : std::uint8_t { Chosen, Never } use = Use::Chosen;
    };
    struct Node {
        double score = 0;          // sum of scores of the best segmentation that ends here
        std::uint32_t length = 0;  // bytes of the last piece of the segmentation; 0: no segmentation ends here
        TokenId id = -1;           // token of the last piece; kUnknown: an unknown character
    };
    /// Scratch space of one thread. It grows to the size that the longest text needs and keeps its memory.
    struct Scratch {
        std::vector<Node> ends;                     // [bytes of the text + 1]
        const std::atomic<bool>* cancel = nullptr;  // segment() throws Interrupted soon after it turns true
    };
    struct Segment {
        std::uint32_t length;  // bytes
        TokenId id;            // kUnknown: one character that is no piece
    };
    static constexpr TokenId kUnknown = -2;

    /// If several pieces have the same text, the last one counts, as in the maps of the original programs.
    /// `unknown_score` is the score of an unknown character. The texts of the pieces are not copied; the segmenter does
    /// not use them after construction.
    UnigramSegmenter(std::vector<Piece> pieces, double unknown_score, Sums sums);

    /// Appends the segments of the best segmentation of `text` to `out`, from left to right. `text` must have less than
    /// 2^31 bytes (CHECKed); each byte that is not part of well-formed UTF-8 counts as a character. Throws Interrupted
    /// if *scratch.cancel turned true.
    void segment(std::string_view text, Scratch& scratch, std::vector<Segment>& out) const;

private:
    struct TrieNode {
        std::uint32_t first_child = 0;
        std::uint16_t n_children = 0;
        std::uint8_t label = 0;
        std::int32_t piece = -1;  // index in scores_ and ids_; -1: no piece ends here
    };
    [[nodiscard]] const TrieNode* child(const TrieNode& node, unsigned char label) const;
    void build(std::span<const Piece> pieces);

    std::vector<TrieNode> trie_;              // the children of a node are adjacent, by ascending label
    std::array<std::uint32_t, 256> roots_{};  // [first byte] node in trie_; 0: none
    std::vector<double> scores_;              // [piece of the trie]
    std::vector<TokenId> ids_;                // [piece of the trie]; -1: never chosen
    double unknown_score_;
    Sums sums_;
};

}  // namespace slipstream
