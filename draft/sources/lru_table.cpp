#include "draft/sources/lru_table.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

// Fibonacci hashing a token at a time; the upper half of the product is well mixed.
std::uint32_t hash_of(std::uint64_t start, std::span<const TokenId> tokens) {
    std::uint64_t state = start;
    for (const TokenId token : tokens) {
        state = (state ^ static_cast<std::uint32_t>(token)) * 0x9e3779b97f4a7c15ULL;
        state ^= state >> 32;
    }
    return static_cast<std::uint32_t>(state);
}

constexpr std::uint64_t kLeaderStart = 0x51ULL << 32;

std::uint64_t follower_start(LruTable::Slot leader) {
    return (static_cast<std::uint64_t>(leader) + 1) << 32 | leader;
}

}  // namespace

LruTable::LruTable(const LruTableShape& shape)
    : shape_(shape),
      leader_stride_(kLeaderLinks + shape.leader_tokens),
      follower_stride_(kFollowerLinks + shape.follower_tokens) {
    CHECK(shape.leader_tokens > 0 && shape.follower_tokens > 0 && shape.max_leaders > 0 && shape.max_followers > 0,
          "a table of {} x {} tokens, {} x {} entries", shape.leader_tokens, shape.follower_tokens, shape.max_leaders,
          shape.max_followers);
}

LruTable::Slot LruTable::find(std::span<const TokenId> tokens) const {
    DCHECK(tokens.size() == shape_.leader_tokens);
    return leader_index_.find(hash_of(kLeaderStart, tokens),
                              [&](Slot slot) { return std::ranges::equal(leader(slot), tokens); });
}

LruTable::Slot LruTable::query(std::span<const TokenId> tokens) {
    const Slot slot = find(tokens);
    if (slot != kNone && slot != newest_leader_) {
        unlink_leader(slot);
        link_leader(slot);
    }
    return slot;
}

void LruTable::insert(std::span<const TokenId> leader_tokens, std::span<const TokenId> follower_tokens) {
    DCHECK(follower_tokens.size() == shape_.follower_tokens);
    Slot owner = query(leader_tokens);
    if (owner == kNone) owner = add_leader(leader_tokens);
    const std::uint32_t hash = hash_of(follower_start(owner), follower_tokens);
    const Slot known = follower_index_.find(hash, [&](Slot slot) {
        return follower_word(slot, kOwner) == owner && std::ranges::equal(follower(slot), follower_tokens);
    });
    if (known == kNone) {
        add_follower(owner, follower_tokens, hash);
    } else if (known != first_follower(owner)) {
        unlink_follower(owner, known);
        link_follower(owner, known);
    }
}

void LruTable::clear() {
    leaders_.clear();
    followers_.clear();
    free_leader_ = free_follower_ = newest_leader_ = oldest_leader_ = kNone;
    leader_index_.clear();
    follower_index_.clear();
}

std::size_t LruTable::memory_bytes() const {
    return (leaders_.capacity() + followers_.capacity()) * sizeof(std::uint32_t) + leader_index_.memory_bytes() +
           follower_index_.memory_bytes();
}

LruTable::Slot LruTable::allocate(Words& words, std::size_t stride, Slot& free) {
    if (free != kNone) {
        const Slot slot = free;
        free = words[slot * stride + kOlder];
        return slot;
    }
    const std::size_t slot = words.size() / stride;
    CHECK(slot < kNone, "{} nodes", slot);
    words.resize(words.size() + stride);
    return static_cast<Slot>(slot);
}

void LruTable::link_leader(Slot leader) {
    leader_word(leader, kNewer) = kNone;
    leader_word(leader, kOlder) = newest_leader_;
    (newest_leader_ == kNone ? oldest_leader_ : leader_word(newest_leader_, kNewer)) = leader;
    newest_leader_ = leader;
}

void LruTable::unlink_leader(Slot leader) {
    const Slot newer = leader_word(leader, kNewer);
    const Slot older = leader_word(leader, kOlder);
    (newer == kNone ? newest_leader_ : leader_word(newer, kOlder)) = older;
    (older == kNone ? oldest_leader_ : leader_word(older, kNewer)) = newer;
}

void LruTable::link_follower(Slot leader, Slot follower) {
    const Slot newest = leader_word(leader, kNewestFollower);
    follower_word(follower, kNewer) = kNone;
    follower_word(follower, kOlder) = newest;
    (newest == kNone ? leader_word(leader, kOldestFollower) : follower_word(newest, kNewer)) = follower;
    leader_word(leader, kNewestFollower) = follower;
}

void LruTable::unlink_follower(Slot leader, Slot follower) {
    const Slot newer = follower_word(follower, kNewer);
    const Slot older = follower_word(follower, kOlder);
    (newer == kNone ? leader_word(leader, kNewestFollower) : follower_word(newer, kOlder)) = older;
    (older == kNone ? leader_word(leader, kOldestFollower) : follower_word(older, kNewer)) = newer;
}

LruTable::Slot LruTable::add_leader(std::span<const TokenId> tokens) {
    if (n_leaders() == shape_.max_leaders) remove_leader(oldest_leader_);
    const Slot slot = allocate(leaders_, leader_stride_, free_leader_);
    leader_word(slot, kNewestFollower) = leader_word(slot, kOldestFollower) = kNone;
    leader_word(slot, kNFollowers) = 0;
    std::ranges::copy(tokens, leaders_.begin() + static_cast<std::ptrdiff_t>(slot * leader_stride_ + kLeaderLinks));
    link_leader(slot);
    leader_index_.insert(hash_of(kLeaderStart, tokens), slot);
    return slot;
}

void LruTable::add_follower(Slot leader, std::span<const TokenId> tokens, std::uint32_t hash) {
    if (n_followers(leader) == shape_.max_followers) remove_follower(leader, leader_word(leader, kOldestFollower));
    const Slot slot = allocate(followers_, follower_stride_, free_follower_);
    follower_word(slot, kOwner) = leader;
    std::ranges::copy(tokens,
                      followers_.begin() + static_cast<std::ptrdiff_t>(slot * follower_stride_ + kFollowerLinks));
    link_follower(leader, slot);
    ++leader_word(leader, kNFollowers);
    follower_index_.insert(hash, slot);
}

void LruTable::remove_leader(Slot slot) {
    while (n_followers(slot) > 0) remove_follower(slot, leader_word(slot, kOldestFollower));
    leader_index_.erase(hash_of(kLeaderStart, leader(slot)), slot);
    unlink_leader(slot);
    leader_word(slot, kOlder) = free_leader_;
    free_leader_ = slot;
}

void LruTable::remove_follower(Slot leader, Slot slot) {
    follower_index_.erase(hash_of(follower_start(leader), follower(slot)), slot);
    unlink_follower(leader, slot);
    --leader_word(leader, kNFollowers);
    follower_word(slot, kOlder) = free_follower_;
    free_follower_ = slot;
}

}  // namespace slipstream::draft
