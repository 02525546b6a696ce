#include "runtime/text/tokenizer/bpe_merger.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "runtime/text/utf8.h"

namespace slipstream {

namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // "▁"

/// Heap order: the highest score on top, the leftmost of equals.
bool merges_later(const BpeMerger::Merge& a, const BpeMerger::Merge& b) {
    return a.score < b.score || (a.score == b.score && a.left > b.left);
}

bool has_inner_space_mark(std::string_view piece) {
    const std::size_t first_other = piece.starts_with(kSpaceMark) ? [&] {
        std::size_t end = 0;
        while (piece.substr(end).starts_with(kSpaceMark)) end += kSpaceMark.size();
        return end;
    }() : 0;
    return piece.find(kSpaceMark, first_other) != std::string_view::npos;
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
                ids_.emplace(piece.text, id);  // the lowest id of equal spellings
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
    const Symbol& a = scratch.symbols[static_cast<std::size_t>(left)];
    const Symbol& b = scratch.symbols[static_cast<std::size_t>(right)];
    const std::uint32_t length = a.length + b.length;
    const std::string_view joined = word.substr(a.begin, length);
    const TokenId id = find(joined);
    if (id < 0) return;
    const SentencePiece& piece = model_.pieces[static_cast<std::size_t>(id)];
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
        const Utf8Step step = next_utf8(word.substr(begin));
        const std::size_t length = step.kind == Utf8Kind::Complete ? step.length : 1;
        const auto index = static_cast<std::int32_t>(symbols.size());
        const bool last = begin + length == word.size();
        symbols.push_back({index - 1, last ? -1 : index + 1, static_cast<std::uint32_t>(begin),
                           static_cast<std::uint32_t>(length), find(word.substr(begin, length))});
        begin += length;
    }
    for (std::int32_t right = 1; right < std::ssize(symbols); ++right) push_merge(word, right - 1, right, scratch);
    while (!scratch.heap.empty()) {
        std::ranges::pop_heap(scratch.heap, merges_later);
        const Merge merge = scratch.heap.back();
        scratch.heap.pop_back();
        Symbol& left = symbols[static_cast<std::size_t>(merge.left)];
        Symbol& right = symbols[static_cast<std::size_t>(merge.right)];
        // Stale where either symbol has merged with another since: a symbol only grows, or goes to length 0.
        if (left.length == 0 || right.length == 0 || left.length + right.length != merge.length) continue;
        left.length = merge.length;
        left.id = merge.id;
        left.next = right.next;
        right.length = 0;
        if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = merge.left;
        push_merge(word, left.previous, merge.left, scratch);
        push_merge(word, merge.left, left.next, scratch);
    }
    for (std::int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[static_cast<std::size_t>(i)].next) {
        const Symbol& symbol = symbols[static_cast<std::size_t>(i)];
        append(word.substr(symbol.begin, symbol.length), symbol.id, scratch, out);
    }
}

void BpeMerger::append(std::string_view piece, TokenId id, const Scratch& scratch, std::vector<TokenId>& out) const {
    if (id >= 0 && model_.pieces[static_cast<std::size_t>(id)].kind != TokenKind::Unused) {
        out.push_back(id);
        return;
    }
    // An unused piece takes part in merging but is taken apart again, into the halves that last proposed it; one that
    // no merge made is as good as none.
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
        out.push_back(model_.unk_id.value());  // validate() saw to it; one for the whole character
        return;
    }
}

}  // namespace slipstream
