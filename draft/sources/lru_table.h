// Cacheback's table: leaders of LL tokens, each with the followers of FL tokens that were seen directly behind it (Ma,
// Gim, Zhong 2025, section 3.1). Both levels are bounded and forget what was used least recently: over LC leaders the
// oldest goes with all its followers, over FC followers of a leader its oldest goes. A leader's recency is renewed by
// query and insertion, a follower's by insertion only, and followers compete within their leader alone.
//
// Nodes lie in two flat arrays of 32-bit words, linked into lists by number, with free lists; two hash indices find
// them. Every operation is O(1) (a leader that goes takes along what was put in before). Memory grows with what is
// stored, never to LC * FC ahead of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "draft/sources/slot_index.h"
#include "runtime/model/model_config.h"

namespace slipstream::draft {

struct LruTableShape {
    std::size_t leader_tokens = 1;    // LL
    std::size_t follower_tokens = 3;  // FL
    std::size_t max_leaders = 1;      // LC
    std::size_t max_followers = 1;    // FC
};

class LruTable {
public:
    /// A leader or a follower; valid until the next insert() or clear().
    using Slot = SlotIndex::Slot;
    static constexpr Slot kNone = SlotIndex::kNone;

    /// Every number of `shape` is at least 1 (CHECKed).
    explicit LruTable(const LruTableShape& shape);

    /// `leader` [LL] was followed by `follower` [FL]: both are the newest now.
    void insert(std::span<const TokenId> leader, std::span<const TokenId> follower);
    /// A query: the leader [LL], renewed, or kNone.
    Slot query(std::span<const TokenId> leader);
    /// The same without renewing it.
    [[nodiscard]] Slot find(std::span<const TokenId> leader) const;
    void clear();

    /// The leader's followers by recency; kNone behind the oldest.
    [[nodiscard]] Slot first_follower(Slot leader) const { return leader_word(leader, kNewestFollower); }
    [[nodiscard]] Slot next_follower(Slot follower) const { return follower_word(follower, kOlder); }
    [[nodiscard]] std::span<const TokenId> follower(Slot follower) const {
        return tokens(followers_, follower * follower_stride_ + kFollowerLinks, shape_.follower_tokens);
    }
    [[nodiscard]] std::size_t n_followers(Slot leader) const { return leader_word(leader, kNFollowers); }

    /// All leaders by recency; kNone behind the oldest.
    [[nodiscard]] Slot first_leader() const { return newest_leader_; }
    [[nodiscard]] Slot next_leader(Slot leader) const { return leader_word(leader, kOlder); }
    [[nodiscard]] std::span<const TokenId> leader(Slot leader) const {
        return tokens(leaders_, leader * leader_stride_ + kLeaderLinks, shape_.leader_tokens);
    }

    [[nodiscard]] const LruTableShape& shape() const { return shape_; }
    [[nodiscard]] std::size_t n_leaders() const { return leader_index_.size(); }
    [[nodiscard]] std::size_t n_followers() const { return follower_index_.size(); }
    [[nodiscard]] std::size_t memory_bytes() const;

private:
    using Words = std::vector<std::uint32_t>;
    // Words of a node: links first, its tokens behind them. A free node's kOlder is the next free one.
    static constexpr std::size_t kNewer = 0;
    static constexpr std::size_t kOlder = 1;
    static constexpr std::size_t kOwner = 2;  // of a follower: its leader
    static constexpr std::size_t kFollowerLinks = 3;
    static constexpr std::size_t kNewestFollower = 2;
    static constexpr std::size_t kOldestFollower = 3;
    static constexpr std::size_t kNFollowers = 4;
    static constexpr std::size_t kLeaderLinks = 5;

    // Tokens are stored in words; signed and unsigned numbers of one size may alias.
    static std::span<const TokenId> tokens(const Words& words, std::size_t begin, std::size_t n) {
        return {reinterpret_cast<const TokenId*>(words.data()) + begin, n};
    }
    [[nodiscard]] std::uint32_t leader_word(Slot leader, std::size_t word) const {
        return leaders_[leader * leader_stride_ + word];
    }
    std::uint32_t& leader_word(Slot leader, std::size_t word) { return leaders_[leader * leader_stride_ + word]; }
    [[nodiscard]] std::uint32_t follower_word(Slot follower, std::size_t word) const {
        return followers_[follower * follower_stride_ + word];
    }
    std::uint32_t& follower_word(Slot follower, std::size_t word) {
        return followers_[follower * follower_stride_ + word];
    }

    static Slot allocate(Words& words, std::size_t stride, Slot& free);
    void link_leader(Slot leader);
    void unlink_leader(Slot leader);
    void link_follower(Slot leader, Slot follower);
    void unlink_follower(Slot leader, Slot follower);
    Slot add_leader(std::span<const TokenId> leader);
    void add_follower(Slot leader, std::span<const TokenId> follower, std::uint32_t hash);
    void remove_leader(Slot leader);
    void remove_follower(Slot leader, Slot follower);

    LruTableShape shape_;
    std::size_t leader_stride_;  // words of a node
    std::size_t follower_stride_;
    Words leaders_, followers_;
    Slot free_leader_ = kNone, free_follower_ = kNone;
    Slot newest_leader_ = kNone, oldest_leader_ = kNone;
    SlotIndex leader_index_;    // by tokens
    SlotIndex follower_index_;  // by leader slot and tokens
};

}  // namespace slipstream::draft
