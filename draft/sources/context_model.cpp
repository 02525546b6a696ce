#include "draft/sources/context_model.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr std::size_t kFirstPlaces = 4096;  // first size of the table; a power of two

}  // namespace

ContextModel::ContextModel(std::int64_t vocab, std::size_t max_contexts)
    : max_contexts_(max_contexts), table_(kFirstPlaces), seen_(vocab), frequent_rank_(vocab) {
    CHECK(vocab > 0 && max_contexts >= kFirstPlaces, "vocab {}, {} contexts", vocab, max_contexts);
}

void ContextModel::clear() {
    if (n_tokens_ == 0) return;
    n_contexts_ = 0;
    std::ranges::fill(table_, Context{});
    pool_.clear();
    n_tokens_ = 0;
    std::ranges::fill(seen_, Seen{});
    std::ranges::fill(frequent_rank_, std::uint8_t{0});
    n_frequent_ = 0;
}

void ContextModel::reserve(std::size_t n_contexts) {
    const std::size_t n = std::min(n_contexts, max_contexts_);
    std::size_t n_places = table_.size();
    while (n_places < 2 * n) n_places *= 2;
    if (n_places > table_.size()) grow_table(n_places);
    pool_.reserve(2 * n);
}

void ContextModel::grow_table(std::size_t n_places) {
    std::vector<Context> old(n_places);
    std::swap(old, table_);
    for (const Context& context : old)
        if (context.key != 0) table_[place_of(context.key)] = context;
}

void ContextModel::count_follower(Context& context, TokenId token) {
    ++context.total;
    std::uint32_t* link = &context.newest;
    for (std::uint32_t n = 1; *link != kNone && pool_[*link].token != token && n < kMaxFollowers; ++n)
        link = &pool_[*link].older;
    // Reuses the token's own place or, if there are too many followers, that of the least recent; else takes a new one.
    std::uint32_t place = *link;
    if (place == kNone) {
        place = static_cast<std::uint32_t>(pool_.size());
        pool_.push_back({.token = token});
        ++context.n_followers;
    } else {
        *link = pool_[place].older;
        if (pool_[place].token != token) pool_[place] = {.token = token};
    }
    ++pool_[place].count;
    pool_[place].older = context.newest;
    context.newest = place;
}

// Counts `token` in order 0, and keeps frequent_ sorted. Counts only grow by one, so a token enters frequent_ at its
// end and moves up.
void ContextModel::count_unigram(TokenId token) {
    const auto id = static_cast<std::size_t>(token);
    ++n_tokens_;
    const std::uint32_t n = ++seen_[id].count;
    seen_[id].last = n_tokens_;
    std::size_t rank = 0;
    if (frequent_rank_[id] != 0) {
        rank = frequent_rank_[id] - 1U;
    } else if (n_frequent_ < kMaxFrequent) {
        rank = n_frequent_++;
    } else {
        rank = kMaxFrequent - 1;
        if (seen(frequent_[rank]).count >= n) return;
        frequent_rank_[frequent_[rank]] = 0;
    }
    for (; rank > 0 && seen(frequent_[rank - 1]).count < n; --rank) {
        frequent_[rank] = frequent_[rank - 1];
        frequent_rank_[frequent_[rank]] = static_cast<std::uint8_t>(rank + 1);
    }
    frequent_[rank] = token;
    frequent_rank_[id] = static_cast<std::uint8_t>(rank + 1);
}

ContextModel::Keys ContextModel::keys_behind(std::span<const TokenId> text) {
    Keys keys{};
    const std::span<const TokenId> last = text.last(std::min<std::size_t>(text.size(), kMaxOrder));
    for (std::size_t i = 0; i < last.size(); ++i) {
        for (std::size_t longer = i; longer > 0; --longer) keys[longer] = extend(keys[longer - 1], last[i]);
        keys[0] = extend(kNoTokens, last[i]);
    }
    return keys;
}

void ContextModel::add(std::span<const TokenId> text) {
    CHECK(!text.empty() && text.back() >= 0 && static_cast<std::size_t>(text.back()) < seen_.size() && !full(),
          "{} tokens, {} contexts", text.size(), n_contexts_);
    count_unigram(text.back());
    const Keys keys = keys_behind(text.first(text.size() - 1));
    for (std::size_t order = 1; order <= kMaxOrder && order < text.size(); ++order) {
        const std::uint64_t key = keys[order - 1];
        std::size_t place = place_of(key);
        if (table_[place].key == 0) {
            if (2 * ++n_contexts_ > table_.size()) {
                grow_table(2 * table_.size());
                place = place_of(key);
            }
            table_[place].key = key;
        }
        count_follower(table_[place], text.back());
    }
}

std::size_t ContextModel::memory_bytes() const {
    return table_.capacity() * sizeof(Context) + pool_.capacity() * sizeof(Follower) +
           seen_.size() * (sizeof(Seen) + 1);
}

}  // namespace slipstream::draft
