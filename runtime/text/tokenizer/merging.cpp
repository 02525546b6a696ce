#include "runtime/text/tokenizer/merging.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/interrupted.h"
#include "runtime/text/utf8.h"

namespace slipstream {

MergeTable::MergeTable(std::size_t n_merges) : entries_(std::bit_ceil(n_merges + n_merges / 2 + 2)) {
    mask_ = entries_.size() - 1;
    shift_ = 64 - std::countr_zero(entries_.size());
}

void MergeTable::set(TokenId left, TokenId right, Merge merge) {
    if (n_merges_ + n_merges_ / 4 + 1 >= entries_.size()) grow();
    const std::uint64_t key = key_of(left, right);
    std::size_t at = slot_of(key);
    while (entries_[at].key != kEmpty && entries_[at].key != key) at = (at + 1) & mask_;
    if (entries_[at].key == kEmpty) ++n_merges_;
    entries_[at] = {key, merge};
}

void MergeTable::grow() {
    const std::vector<Entry> old = std::exchange(entries_, std::vector<Entry>(2 * entries_.size()));
    mask_ = entries_.size() - 1;
    --shift_;
    n_merges_ = 0;
    for (const Entry& entry : old)
        if (entry.key != kEmpty)
            set(static_cast<TokenId>(entry.key >> 32), static_cast<TokenId>(entry.key & UINT32_MAX), entry.merge);
}

namespace {

// Up to this many symbols, a word is searched linearly. Measured on random bytes: the heap is faster from about 60 on.
constexpr std::size_t kMaxShort = 48;
constexpr std::uint32_t kNoRank = MergeTable::kNoRank;
constexpr std::uint32_t kNone = UINT32_MAX;  // ends the linked lists of symbols; no symbol has this index

}  // namespace

void PairMerger::merge(std::span<const TokenId> symbols, Scratch& scratch, std::vector<TokenId>& out) const {
    CHECK(symbols.size() < std::size_t{1} << 31, "a word of {} symbols", symbols.size());
    if (symbols.size() < 2) {
        out.insert(out.end(), symbols.begin(), symbols.end());
        return;
    }
    scratch.ids.assign(symbols.begin(), symbols.end());
    scratch.ranks.assign(symbols.size(), kNoRank);
    scratch.merged.resize(symbols.size());
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        throw_if_cancelled(scratch.cancel);
        const MergeTable::Merge merge = table_.find(symbols[i], symbols[i + 1]);
        scratch.ranks[i] = merge.rank;
        scratch.merged[i] = merge.id;
    }
    if (symbols.size() > kMaxShort) {
        merge_long(scratch, out);
        return;
    }
    merge_short(scratch);
    out.insert(out.end(), scratch.ids.begin(), scratch.ids.end());
}

void PairMerger::merge_short(Scratch& scratch) const {
    std::vector<TokenId>& ids = scratch.ids;
    std::vector<std::uint32_t>& ranks = scratch.ranks;
    std::vector<TokenId>& merged = scratch.merged;
    const auto look_up = [&](std::size_t at) {
        const MergeTable::Merge merge =
            at + 1 < ids.size() ? table_.find(ids[at], ids[at + 1]) : MergeTable::Merge{kNoRank, -1};
        ranks[at] = merge.rank;
        merged[at] = merge.id;
    };
    for (;;) {
        const auto best = std::ranges::min_element(ranks);
        if (best == ranks.end() || *best == kNoRank) return;
        const std::ptrdiff_t at = best - ranks.begin();
        ids[at] = merged[at];
        ids.erase(ids.begin() + at + 1);
        ranks.erase(ranks.begin() + at + 1);
        merged.erase(merged.begin() + at + 1);
        look_up(at);
        if (at > 0) look_up(static_cast<std::size_t>(at) - 1);
    }
}

void PairMerger::merge_long(Scratch& scratch, std::vector<TokenId>& out) const {
    std::vector<TokenId>& ids = scratch.ids;
    std::vector<std::uint32_t>& ranks = scratch.ranks;
    std::vector<TokenId>& merged = scratch.merged;
    std::vector<std::uint32_t>& previous = scratch.previous;
    std::vector<std::uint32_t>& next = scratch.next;
    std::vector<std::uint64_t>& heap = scratch.heap;
    const auto n = static_cast<std::uint32_t>(ids.size());
    previous.resize(n);
    next.resize(n);
    heap.clear();
    for (std::uint32_t i = 0; i < n; ++i) {
        previous[i] = i == 0 ? kNone : i - 1;
        next[i] = i + 1 == n ? kNone : i + 1;
        if (ranks[i] != kNoRank) heap.push_back(std::uint64_t{ranks[i]} << 32 | i);
    }
    std::ranges::make_heap(heap, std::greater{});
    const auto look_up = [&](std::uint32_t at) {
        const MergeTable::Merge merge =
            next[at] == kNone ? MergeTable::Merge{kNoRank, -1} : table_.find(ids[at], ids[next[at]]);
        ranks[at] = merge.rank;
        merged[at] = merge.id;
        if (merge.rank == kNoRank) return;
        heap.push_back(std::uint64_t{merge.rank} << 32 | at);
        std::ranges::push_heap(heap, std::greater{});
    };
    while (!heap.empty()) {
        throw_if_cancelled(scratch.cancel);
        std::ranges::pop_heap(heap, std::greater{});
        const auto at = static_cast<std::uint32_t>(heap.back());
        const auto rank = static_cast<std::uint32_t>(heap.back() >> 32);
        heap.pop_back();
        if (ranks[at] != rank) continue;
        const std::uint32_t gone = next[at];
        ids[at] = merged[at];
        ranks[gone] = kNoRank;
        next[at] = next[gone];
        if (next[at] != kNone) previous[next[at]] = at;
        look_up(at);
        if (previous[at] != kNone) look_up(previous[at]);
    }
    for (std::uint32_t i = 0; i != kNone; i = next[i]) out.push_back(ids[i]);
}

namespace {

/// Order of the heap: the merge with the highest score is on top, of equal scores the leftmost. Returns whether `a`
/// merges after `b`.
bool merges_later(const BpeMerger::Merge& a, const BpeMerger::Merge& b) {
    return a.score < b.score || (a.score == b.score && a.left > b.left);
}

bool has_inner_space_mark(std::string_view piece) {
    while (piece.starts_with(kSpaceMark)) piece.remove_prefix(kSpaceMark.size());
    return piece.find(kSpaceMark) != std::string_view::npos;
}

}  // namespace

BpeMerger::BpeMerger(const SentencePieceModel& model) : model_(model) {
    byte_ids_.fill(-1);
    ids_.reserve(model.pieces.size());
    for (std::size_t i = 0; i < model.pieces.size(); ++i) {
        const SentencePiece& piece = model.pieces[i];
        const auto id = static_cast<TokenId>(i);
        switch (piece.kind) {
            case TokenKind::Byte: {
                TokenId& byte_id = byte_ids_[byte_of_piece(piece.text).value()];
                if (byte_id < 0) byte_id = id;
                break;
            }
            case TokenKind::Normal:
            case TokenKind::UserDefined:
            case TokenKind::Unused:
                ids_.emplace(piece.text, id);  // of pieces with equal texts, the lowest id counts
                if (has_inner_space_mark(piece.text)) words_are_independent_ = false;
                break;
            case TokenKind::Unknown:
            case TokenKind::Control:
                break;
        }
    }
}

TokenId BpeMerger::find(std::string_view piece) const {
    const auto found = ids_.find(piece);
    return found == ids_.end() ? -1 : found->second;
}

void BpeMerger::push_merge(std::string_view word, std::int32_t left, std::int32_t right, Scratch& scratch) const {
    if (left < 0 || right < 0) return;
    const Symbol& a = scratch.symbols[left];
    const Symbol& b = scratch.symbols[right];
    const std::uint32_t length = a.length + b.length;
    const std::string_view joined = word.substr(a.begin, length);
    const TokenId id = find(joined);
    if (id < 0) return;
    const SentencePiece& piece = model_.pieces[id];
    if (piece.kind == TokenKind::Unused) scratch.unused_splits[joined] = a.length;
    scratch.heap.push_back({piece.score, left, right, length, id});
    std::ranges::push_heap(scratch.heap, merges_later);
}

void BpeMerger::encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
    CHECK(word.size() < 1U << 31, "a word of {} bytes", word.size());
    auto& symbols = scratch.symbols;
    symbols.clear();
    scratch.heap.clear();
    scratch.unused_splits.clear();
    for (std::size_t begin = 0; begin < word.size();) {
        throw_if_cancelled(scratch.cancel);
        const Utf8Step step = next_utf8(word.substr(begin));
        const std::size_t length = step.kind == Utf8Kind::Complete ? step.length : 1;
        const auto index = static_cast<std::int32_t>(symbols.size());
        const bool last = begin + length == word.size();
        symbols.push_back({index - 1, last ? -1 : index + 1, static_cast<std::uint32_t>(begin),
                           static_cast<std::uint32_t>(length), find(word.substr(begin, length))});
        begin += length;
    }
    for (std::int32_t right = 1; right < std::ssize(symbols); ++right) {
        throw_if_cancelled(scratch.cancel);
        push_merge(word, right - 1, right, scratch);
    }
    while (!scratch.heap.empty()) {
        throw_if_cancelled(scratch.cancel);
        std::ranges::pop_heap(scratch.heap, merges_later);
        const Merge merge = scratch.heap.back();
        scratch.heap.pop_back();
        Symbol& left = symbols[merge.left];
        Symbol& right = symbols[merge.right];
        // The entry is stale if either symbol has merged with another one since: a symbol only becomes longer, or its
        // length becomes 0.
        if (left.length == 0 || right.length == 0 || left.length + right.length != merge.length) continue;
        left.length = merge.length;
        left.id = merge.id;
        left.next = right.next;
        right.length = 0;
        if (left.next >= 0) symbols[left.next].previous = merge.left;
        push_merge(word, left.previous, merge.left, scratch);
        push_merge(word, merge.left, left.next, scratch);
    }
    for (std::int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[i].next) {
        const Symbol& symbol = symbols[i];
        append(word.substr(symbol.begin, symbol.length), symbol.id, scratch, out);
    }
}

void BpeMerger::append(std::string_view piece, TokenId id, const Scratch& scratch, std::vector<TokenId>& out) const {
    if (id >= 0 && model_.pieces[id].kind != TokenKind::Unused) {
        out.push_back(id);
        return;
    }
    // An unused piece takes part in merging and is then split again, into the two halves of which it was last proposed.
    // If no merge formed it, it is treated as a text that is no piece.
    if (const auto split = scratch.unused_splits.find(piece); split != scratch.unused_splits.end()) {
        for (const std::string_view half : {piece.substr(0, split->second), piece.substr(split->second)})
            append(half, find(half), scratch, out);
        return;
    }
    for (const char c : piece) {
        const TokenId byte_id = byte_ids_[static_cast<unsigned char>(c)];
        if (byte_id >= 0) {
            out.push_back(byte_id);
            continue;
        }
        out.push_back(model_.unk_id.value());  // exists: checked by validate(); one token for the whole symbol
        return;
    }
}

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

/// Builds the trie breadth first, so that the children of a node are adjacent. `pieces` must be sorted by text, each
/// text once. An entry of the queue is a node and the range of pieces that begin with the path to it.
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
        throw_if_cancelled(scratch.cancel);
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
