#include "runtime/text/tokenizer/unigram_segmenter.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "runtime/text/utf8.h"

namespace slipstream {

UnigramSegmenter::UnigramSegmenter(std::vector<Piece> pieces, double unknown_score, Sums sums)
    : unknown_score_(unknown_score), sums_(sums) {
    std::ranges::stable_sort(pieces, {}, &Piece::text);
    std::vector<Piece> unique;
    for (const Piece& piece : pieces) {
        if (!unique.empty() && unique.back().text == piece.text)
            unique.back() = piece;
        else
            unique.push_back(piece);
    }
    build(unique);
}

/// Breadth first, so that the children of a node lie side by side. Each entry of the queue is a node and the run of
/// pieces, sorted, that begin with its path.
void UnigramSegmenter::build(std::span<const Piece> pieces) {
    struct Run {
        std::uint32_t node;
        std::size_t first, last, depth;
    };
    trie_.assign(1, {});
    scores_.reserve(pieces.size());
    ids_.reserve(pieces.size());
    std::vector<Run> queue = {{0, 0, pieces.size(), 0}};
    for (std::size_t q = 0; q < queue.size(); ++q) {
        Run run = queue[q];
        if (run.first < run.last && pieces[run.first].text.size() == run.depth) {
            trie_[run.node].piece = static_cast<std::int32_t>(scores_.size());
            scores_.push_back(pieces[run.first].score);
            ids_.push_back(pieces[run.first].use == Piece::Use::Never ? -1 : pieces[run.first].id);
            ++run.first;
        }
        trie_[run.node].first_child = static_cast<std::uint32_t>(trie_.size());
        while (run.first < run.last) {
            const auto label = static_cast<unsigned char>(pieces[run.first].text[run.depth]);
            std::size_t end = run.first;
            while (end < run.last && static_cast<unsigned char>(pieces[end].text[run.depth]) == label) ++end;
            queue.push_back({static_cast<std::uint32_t>(trie_.size()), run.first, end, run.depth + 1});
            if (run.node == 0) roots_[label] = static_cast<std::uint32_t>(trie_.size());
            trie_.push_back({.label = label});
            ++trie_[run.node].n_children;
            run.first = end;
        }
    }
}

const UnigramSegmenter::TrieNode* UnigramSegmenter::child(const TrieNode& node, unsigned char label) const {
    const auto children = std::span(trie_).subspan(node.first_child, node.n_children);
    const auto found = std::ranges::lower_bound(children, label, {}, &TrieNode::label);
    return found != children.end() && found->label == label ? &*found : nullptr;
}

void UnigramSegmenter::segment(std::string_view text, Scratch& scratch, std::vector<Segment>& out) const {
    CHECK(text.size() < std::size_t{1} << 31, "a text of {} bytes", text.size());
    std::vector<Node>& ends = scratch.ends;
    ends.assign(text.size() + 1, {});
    const auto rounded = [this](double sum) {
        return sums_ == Sums::Float ? static_cast<double>(static_cast<float>(sum)) : sum;
    };
    const auto offer = [&](std::size_t begin, std::size_t length, double sum, TokenId id) {
        Node& node = ends[begin + length];
        if (node.length == 0 || sum > node.score) node = {sum, static_cast<std::uint32_t>(length), id};
    };
    for (std::size_t begin = 0; begin < text.size();) {
        const Utf8Step step = next_utf8(text.substr(begin));
        const std::size_t character = step.kind == Utf8Kind::Complete ? step.length : 1;
        const double before = ends[begin].score;
        bool character_is_piece = false;
        const std::uint32_t root = roots_[static_cast<unsigned char>(text[begin])];
        const TrieNode* node = root == 0 ? nullptr : &trie_[root];
        for (std::size_t length = 1; node != nullptr; ++length) {
            const auto piece = static_cast<std::size_t>(node->piece);
            if (node->piece >= 0 && ids_[piece] >= 0) {
                offer(begin, length, rounded(scores_[piece] + before), ids_[piece]);
                character_is_piece = character_is_piece || length == character;
            }
            if (begin + length == text.size()) break;
            node = child(*node, static_cast<unsigned char>(text[begin + length]));
        }
        if (!character_is_piece) offer(begin, character, rounded(unknown_score_ + before), kUnknown);
        begin += character;
    }
    const std::size_t first = out.size();
    for (std::size_t end = text.size(); end > 0; end -= ends[end].length)
        out.push_back({ends[end].length, ends[end].id});
    std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
}

}  // namespace slipstream
