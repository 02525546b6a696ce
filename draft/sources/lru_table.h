// Cacheback's table: leaders of LL tokens, each with the followers of FL tokens that came directly after it (Ma, Gim,
// Zhong 2025, section 3.1). The table holds at most LC leaders, and at most FC followers of each leader. A further
// leader replaces the least recently used one with all its followers; a further follower replaces the least recent one
// of its leader. A query or an insertion makes a leader the most recent, only an insertion a follower. So a follower
// never replaces a follower of another leader.
//
// Every operation takes O(1) time, amortised: removing a leader also removes the followers that were inserted before.
// Memory grows with what is stored; it is not reserved for LC * FC entries.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "draft/sources/recency_rows.h"

namespace slipstream::draft {

struct LruTableShape {
    std::size_t leader_tokens = 1;    // LL
    std::size_t follower_tokens = 3;  // FL
    std::size_t max_leaders = 1;      // LC
    std::size_t max_followers = 1;    // FC
};

class LruTable {
public:
    /// A leader or a follower. Valid until the next insert() or clear().
    using Slot = RecencyRows::Slot;
    static constexpr Slot kNone = RecencyRows::kNone;

    /// All numbers of `shape` must be at least 1 (CHECKed).
    explicit LruTable(const LruTableShape& shape);

    /// Inserts the pair of `leader` [LL] and `follower` [FL], or renews it if it is known. Both are the most recent
    /// then.
    void insert(std::span<const TokenId> leader, std::span<const TokenId> follower);
    /// Returns the leader [LL] and makes it the most recent, or returns kNone.
    Slot query(std::span<const TokenId> leader);
    /// Returns the leader [LL] without changing its recency, or kNone.
    [[nodiscard]] Slot find(std::span<const TokenId> leader) const { return leaders_.find(0, leader); }
    /// Forgets all leaders and followers.
    void clear();

    /// first_follower() returns the most recent follower of a leader, next_follower() the next older one; kNone after
    /// the oldest.
    [[nodiscard]] Slot first_follower(Slot leader) const { return followers_of_[leader].newest; }
    [[nodiscard]] Slot next_follower(Slot follower) const { return followers_.older(follower); }
    /// Returns the follower's tokens [FL], valid as long as `follower`.
    [[nodiscard]] std::span<const TokenId> follower(Slot follower) const { return followers_.tokens(follower); }
    /// Returns the number of followers of `leader`.
    [[nodiscard]] std::size_t n_followers(Slot leader) const { return followers_of_[leader].n; }

    /// first_leader() returns the most recent leader, next_leader() the next older one; kNone after the oldest.
    [[nodiscard]] Slot first_leader() const { return by_recency_.newest; }
    [[nodiscard]] Slot next_leader(Slot leader) const { return leaders_.older(leader); }
    /// Returns the leader's tokens [LL], valid as long as `leader`.
    [[nodiscard]] std::span<const TokenId> leader(Slot leader) const { return leaders_.tokens(leader); }

    [[nodiscard]] const LruTableShape& shape() const { return shape_; }
    [[nodiscard]] std::size_t leader_tokens() const { return shape_.leader_tokens; }
    /// Returns the number of leaders.
    [[nodiscard]] std::size_t n_leaders() const { return leaders_.size(); }
    /// Returns the number of followers of all leaders.
    [[nodiscard]] std::size_t n_followers() const { return followers_.size(); }
    [[nodiscard]] std::size_t memory_bytes() const;

private:
    Slot add_leader(std::span<const TokenId> leader);

    LruTableShape shape_;
    RecencyRows leaders_, followers_;
    RecencyRows::List by_recency_;                 // leaders by recency
    std::vector<RecencyRows::List> followers_of_;  // [leader slots]
};

}  // namespace slipstream::draft
