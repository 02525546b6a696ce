#include "runtime/text/tokenizer/pair_merger.h"

#include <algorithm>
#include <functional>

#include "kernels/base/check.h"

namespace slipstream {

namespace {

constexpr std::size_t kMaxShort = 48;  // symbols; measured on random bytes: the heap is quicker from about 60 on
constexpr std::uint32_t kNoRank = MergeTable::kNoRank;
constexpr std::uint32_t kNone = UINT32_MAX;

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
        ids[static_cast<std::size_t>(at)] = merged[static_cast<std::size_t>(at)];
        ids.erase(ids.begin() + at + 1);
        ranks.erase(ranks.begin() + at + 1);
        merged.erase(merged.begin() + at + 1);
        look_up(static_cast<std::size_t>(at));
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

}  // namespace slipstream
