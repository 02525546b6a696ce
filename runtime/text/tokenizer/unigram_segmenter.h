// SentencePiece's unigram model (Kudo 2018, arXiv 1804.10959, section 3.1): of all ways to cut a text into pieces, the
// one whose scores (log probabilities) sum highest, by Viterbi over the ends of pieces. A character that is no piece
// may stand alone at a penalty, as unknown.
//
// Sums are rounded as the original rounds them, in float for SentencePiece and in double for the tokenizers package:
// ties and near-ties fall alike. Pieces lie in a trie whose children are contiguous and sorted. O(n x longest piece)
// time, O(n) memory.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/text/token_id.h"

namespace slipstream {

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
        std::vector<Node> ends;  // [bytes + 1]
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
