// Format of Cacheback's dynamic table on disk: LL, FL, the leaders from the oldest to the newest [n_leaders, LL], the
// number of followers of each leader [n_leaders], and the followers [n_followers, FL], those of each leader from its
// oldest to its newest. Inserting them in this order restores all recencies.
#include <algorithm>
#include <vector>

#include "draft/sources/cacheback.h"
#include "kernels/base/checked_math.h"

namespace slipstream::draft {

namespace {

struct Selection {
    std::vector<LruTable::Slot> leaders;  // newest first
    std::size_t max_followers;            // most followers saved of one leader
};

// Returns the saved bytes of a leader with `n_followers` followers.
std::size_t bytes_of(const LruTableShape& shape, std::size_t n_followers) {
    return sizeof(TokenId) * (shape.leader_tokens + 1 + n_followers * shape.follower_tokens);
}

// Selects what fits into `max_bytes`: all leaders with a reduced number of followers each or, if even one follower each
// is too many, the most recent leaders.
Selection select(const LruTable& table, std::size_t max_bytes) {
    Selection selection{.leaders = {}, .max_followers = table.shape().max_followers};
    const auto all_bytes = [&] {
        std::size_t bytes = 0;
        for (auto leader = table.first_leader(); leader != LruTable::kNone; leader = table.next_leader(leader))
            bytes += bytes_of(table.shape(), std::min(table.n_followers(leader), selection.max_followers));
        return bytes;
    };
    while (selection.max_followers > 1 && all_bytes() > max_bytes) selection.max_followers /= 2;
    std::size_t bytes = 0;
    for (auto leader = table.first_leader(); leader != LruTable::kNone; leader = table.next_leader(leader)) {
        bytes += bytes_of(table.shape(), std::min(table.n_followers(leader), selection.max_followers));
        if (bytes > max_bytes) break;
        selection.leaders.push_back(leader);
    }
    return selection;
}

}  // namespace

void Cacheback::save(TableWriter& writer) const {
    Selection selection = select(dynamic_, kMaxSavedBytes);
    if (selection.leaders.empty()) return;
    std::ranges::reverse(selection.leaders);
    std::vector<TokenId> leaders, followers;
    std::vector<std::uint32_t> counts;
    std::vector<LruTable::Slot> newest;
    for (const LruTable::Slot leader : selection.leaders) {
        const auto tokens = dynamic_.leader(leader);
        leaders.insert(leaders.end(), tokens.begin(), tokens.end());
        newest.clear();
        for (auto follower = dynamic_.first_follower(leader);
             follower != LruTable::kNone && newest.size() < selection.max_followers;
             follower = dynamic_.next_follower(follower))
            newest.push_back(follower);
        counts.push_back(static_cast<std::uint32_t>(newest.size()));
        std::ranges::reverse(newest);
        for (const LruTable::Slot follower : newest) {
            const auto more = dynamic_.follower(follower);
            followers.insert(followers.end(), more.begin(), more.end());
        }
    }
    writer.u32(static_cast<std::uint32_t>(dynamic_.shape().leader_tokens));
    writer.u32(static_cast<std::uint32_t>(dynamic_.shape().follower_tokens));
    writer.i32s(leaders);
    writer.u32s(counts);
    writer.i32s(followers);
}

void Cacheback::load(TableReader& reader) {
    const LruTableShape& shape = dynamic_.shape();
    const std::size_t n_leader_tokens = reader.u32();
    const std::size_t n_follower_tokens = reader.u32();
    // The section is sound but of no use for this table; the next save() replaces it.
    if (n_leader_tokens != shape.leader_tokens || n_follower_tokens != shape.follower_tokens) return;
    const auto leaders = reader.i32s();
    const auto counts = reader.u32s();
    const auto followers = reader.i32s();
    reader.finish();
    std::uint64_t n_followers = 0;
    for (const std::uint32_t count : counts) n_followers += count;
    const auto is_id = [this](TokenId token) { return token >= 0 && token < vocab_; };
    if (checked_mul(counts.size(), shape.leader_tokens) != leaders.size() ||
        checked_mul<std::uint64_t>(n_followers, shape.follower_tokens) != followers.size() ||
        !std::ranges::all_of(leaders, is_id) || !std::ranges::all_of(followers, is_id))
        reader.fail("the table is damaged; it starts afresh");
    reset();
    std::size_t at = 0;
    for (std::size_t i = 0; i < counts.size(); ++i)
        for (std::uint32_t j = 0; j < counts[i]; ++j, at += shape.follower_tokens)
            dynamic_.insert(leaders.subspan(i * shape.leader_tokens, shape.leader_tokens),
                            followers.subspan(at, shape.follower_tokens));
}

}  // namespace slipstream::draft
