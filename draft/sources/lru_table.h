// Cacheback's table: leaders of LL tokens, each with the followers of FL tokens that were seen directly behind it (Ma,
// Gim, Zhong 2025, section 3.1). Both levels are bounded and forget what was used least recently: over LC leaders the
// oldest goes with all its followers, over FC followers of a leader its oldest goes. A leader's recency is renewed by
// query and insertion, a follower's by insertion only, and followers compete within their leader alone.
//
// Every operation is O(1) (a leader that goes takes along what was put in before). Memory grows with what is stored,
// never to LC * FC ahead of it.
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
    /// A leader or a follower; valid until the next insert() or clear().
    using Slot = RecencyRows::Slot;
    static constexpr Slot kNone = RecencyRows::kNone;

    /// Every number of `shape` is at least 1 (CHECKed).
    explicit LruTable(const LruTableShape& shape);

    /// `leader` [LL] was followed by `follower` [FL]: both are the newest now.
    void insert(std::span<const TokenId> leader, std::span<const TokenId> follower);
    /// A query: the leader [LL], renewed, or kNone.
    Slot query(std::span<const TokenId> leader);
    /// The same without renewing it.
    [[nodiscard]] Slot find(std::span<const TokenId> leader) const { return leaders_.find(0, leader); }
    void clear();

    /// The leader's followers by recency; kNone behind the oldest.
    [[nodiscard]] Slot first_follower(Slot leader) const { return followers_of_[leader].newest; }
    [[nodiscard]] Slot next_follower(Slot follower) const { return followers_.older(follower); }
    [[nodiscard]] std::span<const TokenId> follower(Slot follower) const { return followers_.tokens(follower); }
    [[nodiscard]] std::size_t n_followers(Slot leader) const { return followers_of_[leader].n; }

    /// All leaders by recency; kNone behind the oldest.
    [[nodiscard]] Slot first_leader() const { return by_recency_.newest; }
    [[nodiscard]] Slot next_leader(Slot leader) const { return leaders_.older(leader); }
    [[nodiscard]] std::span<const TokenId> leader(Slot leader) const { return leaders_.tokens(leader); }

    [[nodiscard]] const LruTableShape& shape() const { return shape_; }
    [[nodiscard]] std::size_t leader_tokens() const { return shape_.leader_tokens; }
    [[nodiscard]] std::size_t n_leaders() const { return leaders_.size(); }
    [[nodiscard]] std::size_t n_followers() const { return followers_.size(); }
    [[nodiscard]] std::size_t memory_bytes() const;

private:
    Slot add_leader(std::span<const TokenId> leader);

    LruTableShape shape_;
    RecencyRows leaders_, followers_;
    RecencyRows::List by_recency_;                 // leaders
    std::vector<RecencyRows::List> followers_of_;  // [leader slots]
};

}  // namespace slipstream::draft
