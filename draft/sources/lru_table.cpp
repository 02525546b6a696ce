#include "draft/sources/lru_table.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace slipstream::draft {

LruTable::LruTable(const LruTableShape& shape)
    : shape_(shape), leaders_(shape.leader_tokens), followers_(shape.follower_tokens) {
    CHECK(shape.leader_tokens > 0 && shape.follower_tokens > 0 && shape.max_leaders > 0 && shape.max_followers > 0,
          "a table of {} x {} tokens, {} x {} entries", shape.leader_tokens, shape.follower_tokens, shape.max_leaders,
          shape.max_followers);
}

LruTable::Slot LruTable::query(std::span<const TokenId> leader) {
    const Slot slot = find(leader);
    if (slot != kNone) leaders_.renew(by_recency_, slot);
    return slot;
}

void LruTable::insert(std::span<const TokenId> leader, std::span<const TokenId> follower) {
    Slot owner = query(leader);
    if (owner == kNone) owner = add_leader(leader);
    RecencyRows::List& list = followers_of_[owner];
    const Slot known = followers_.find(owner, follower);
    if (known != kNone) return followers_.renew(list, known);
    if (list.n == shape_.max_followers) followers_.remove(list, list.oldest);
    followers_.add(list, owner, follower);
}

LruTable::Slot LruTable::add_leader(std::span<const TokenId> leader) {
    if (n_leaders() == shape_.max_leaders) {
        RecencyRows::List& list = followers_of_[by_recency_.oldest];
        while (list.n > 0) followers_.remove(list, list.oldest);
        leaders_.remove(by_recency_, by_recency_.oldest);
    }
    const Slot slot = leaders_.add(by_recency_, 0, leader);
    followers_of_.resize(std::max<std::size_t>(followers_of_.size(), slot + 1));
    return slot;
}

void LruTable::clear() {
    leaders_.clear();
    followers_.clear();
    by_recency_ = {};
    followers_of_.clear();
}

std::size_t LruTable::memory_bytes() const {
    return leaders_.memory_bytes() + followers_.memory_bytes() + followers_of_.capacity() * sizeof(RecencyRows::List);
}

}  // namespace slipstream::draft
