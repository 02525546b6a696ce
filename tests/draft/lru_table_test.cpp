// The two-level LRU table against a plain one of lists and maps.
#include "draft/sources/lru_table.h"

#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slipstream::draft {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Tokens = std::vector<TokenId>;

// Newest first in both levels.
class PlainTable {
public:
    explicit PlainTable(const LruTableShape& shape) : shape_(shape) {}
    void insert(const Tokens& leader, const Tokens& follower) {
        if (!query(leader)) leaders_.push_front({leader, {}});
        if (leaders_.size() > shape_.max_leaders) leaders_.pop_back();
        std::list<Tokens>& followers = leaders_.front().followers;
        followers.remove(follower);
        followers.push_front(follower);
        if (followers.size() > shape_.max_followers) followers.pop_back();
    }
    bool query(const Tokens& leader) {
        const auto found = std::ranges::find(leaders_, leader, &Entry::leader);
        if (found == leaders_.end()) return false;
        leaders_.splice(leaders_.begin(), leaders_, found);
        return true;
    }
    void clear() { leaders_.clear(); }
    struct Entry {
        Tokens leader;
        std::list<Tokens> followers;
    };
    [[nodiscard]] const std::list<Entry>& leaders() const { return leaders_; }

private:
    LruTableShape shape_;
    std::list<Entry> leaders_;
};

Tokens copy(std::span<const TokenId> tokens) {
    return {tokens.begin(), tokens.end()};
}

void expect_equal(const LruTable& table, const PlainTable& plain) {
    std::size_t n_followers = 0;
    auto leader = table.first_leader();
    for (const auto& entry : plain.leaders()) {
        ASSERT_NE(leader, LruTable::kNone);
        ASSERT_EQ(copy(table.leader(leader)), entry.leader);
        ASSERT_EQ(table.find(entry.leader), leader);
        ASSERT_EQ(table.n_followers(leader), entry.followers.size());
        auto follower = table.first_follower(leader);
        for (const Tokens& tokens : entry.followers) {
            ASSERT_NE(follower, LruTable::kNone);
            ASSERT_EQ(copy(table.follower(follower)), tokens);
            follower = table.next_follower(follower);
            ++n_followers;
        }
        ASSERT_EQ(follower, LruTable::kNone);
        leader = table.next_leader(leader);
    }
    ASSERT_EQ(leader, LruTable::kNone);
    ASSERT_EQ(table.n_leaders(), plain.leaders().size());
    ASSERT_EQ(table.n_followers(), n_followers);
}

struct Case {
    LruTableShape shape;
    TokenId n_ids;
};

class LruTableTest : public testing::TestWithParam<Case> {};

TEST_P(LruTableTest, DoesWhatAPlainTableDoes) {
    const auto& [shape, n_ids] = GetParam();
    LruTable table(shape);
    PlainTable plain(shape);
    std::mt19937 random(7);
    const auto tokens = [&](std::size_t n) {
        Tokens ids(n);
        for (TokenId& id : ids) id = static_cast<TokenId>(random() % static_cast<unsigned>(n_ids));
        return ids;
    };
    for (int step = 0; step < 4000; ++step) {
        const Tokens leader = tokens(shape.leader_tokens);
        if (random() % 4 == 0) {
            const bool known = plain.query(leader);
            ASSERT_EQ(table.query(leader) != LruTable::kNone, known);
        } else {
            const Tokens follower = tokens(shape.follower_tokens);
            plain.insert(leader, follower);
            table.insert(leader, follower);
        }
        if (step == 2500) {
            plain.clear();
            table.clear();
        }
        if (step % 16 == 0) {
            ASSERT_NO_FATAL_FAILURE(expect_equal(table, plain)) << "step " << step;
        }
    }
    expect_equal(table, plain);
}

INSTANTIATE_TEST_SUITE_P(Shapes, LruTableTest,
                         testing::Values(Case{{1, 1, 1, 1}, 3}, Case{{1, 3, 1, 5}, 3}, Case{{1, 3, 5, 1}, 8},
                                         Case{{1, 2, 20, 4}, 40}, Case{{2, 1, 30, 3}, 8}, Case{{3, 4, 50, 2}, 4},
                                         Case{{1, 3, 1 << 20, 128}, 12}, Case{{2, 2, 7, 9}, 5}));

TEST(LruTable, QueriesRenewLeadersAndOnlyInsertionRenewsFollowers) {
    LruTable table({.leader_tokens = 1, .follower_tokens = 1, .max_leaders = 2, .max_followers = 2});
    const auto insert = [&](TokenId leader, TokenId follower) { table.insert({&leader, 1}, {&follower, 1}); };
    const auto followers = [&](TokenId leader) {
        Tokens tokens;
        auto at = table.query({&leader, 1});
        if (at == LruTable::kNone) return tokens;
        for (at = table.first_follower(at); at != LruTable::kNone; at = table.next_follower(at))
            tokens.push_back(table.follower(at).front());
        return tokens;
    };
    insert(1, 10);
    insert(1, 11);
    EXPECT_THAT(followers(1), ElementsAre(11, 10));
    insert(1, 10);  // renewed
    EXPECT_THAT(followers(1), ElementsAre(10, 11));
    insert(1, 12);  // the oldest goes
    EXPECT_THAT(followers(1), ElementsAre(12, 10));
    insert(2, 20);
    EXPECT_THAT(followers(1), ElementsAre(12, 10));  // the query renews leader 1
    insert(3, 30);
    EXPECT_THAT(followers(2), IsEmpty());
    EXPECT_THAT(followers(1), ElementsAre(12, 10));
    insert(2, 21);  // back again, without what it had; leader 3 was the oldest
    EXPECT_THAT(followers(2), ElementsAre(21));
    EXPECT_THAT(followers(3), IsEmpty());
}

TEST(LruTable, MemoryGrowsWithWhatIsStored) {
    LruTable table({.leader_tokens = 1, .follower_tokens = 3, .max_leaders = 1 << 20, .max_followers = 128});
    EXPECT_LT(table.memory_bytes(), 1024U);
    const auto fill = [&](TokenId n) {
        for (TokenId id = 0; id < n; ++id) table.insert(std::vector{id}, std::vector{id, id + 1, id + 2});
    };
    fill(1000);
    const std::size_t bytes = table.memory_bytes();
    EXPECT_LT(bytes, 1000U * 2 * 100);
    fill(1000);  // nothing more to remember
    EXPECT_EQ(table.memory_bytes(), bytes);
}

TEST(LruTable, WhatIsReplacedCostsNoMemory) {
    LruTable table({.leader_tokens = 1, .follower_tokens = 2, .max_leaders = 50, .max_followers = 4});
    std::mt19937 random(1);
    const auto churn = [&] {
        for (int i = 0; i < 20'000; ++i) {
            const auto id = static_cast<TokenId>(random() % 1000);
            table.insert(std::vector{id}, std::vector{static_cast<TokenId>(random() % 1000), id});
        }
    };
    churn();
    const std::size_t bytes = table.memory_bytes();
    churn();
    EXPECT_EQ(table.memory_bytes(), bytes);
}

}  // namespace
}  // namespace slipstream::draft
