// Cacheback's frozen table (Ma, Gim, Zhong 2025, section 3.3): the most frequent leaders of a corpus, and for each the
// followers that came after it most often. It never changes; it is read in place from a mapped table file.
//
// Section "cacheback-frozen": LL, FL, vocabulary size, the tokenizer's fingerprint, the leaders in ascending order
// [n_leaders, LL], the start of each leader's followers [n_leaders + 1], and the followers [n_followers, FL], those of
// a leader by falling frequency.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "draft/tables/table_file.h"
#include "runtime/model/model_config.h"

namespace slipstream::draft {

inline constexpr std::string_view kFrozenTableSection = "cacheback-frozen";

/// The tokenizer that a table must have been made with: a table of other ids would propose nonsense.
struct FrozenTableKey {
    std::int64_t vocab = 0;                   // the table's ids must be below it
    std::uint64_t tokenizer_fingerprint = 0;  // runtime's tokenizer_fingerprint()
};

class FrozenTable {
public:
    /// Index of a leader among the leaders of the table, or of a follower among the followers of all leaders.
    using Slot = std::uint32_t;
    static constexpr Slot kNone = ~Slot{0};

    /// Checks everything that is used later: orders, bounds, ids. Throws FormatError if the section is missing or
    /// damaged, RequestError if the table was made with another tokenizer.
    FrozenTable(TableFile file, const FrozenTableKey& key);
    /// Opens the file at `path` and makes the table. Throws IoError too.
    [[nodiscard]] static FrozenTable open(const std::filesystem::path& path, const FrozenTableKey& key);

    /// Returns the leader with these tokens [leader_tokens()], or kNone.
    [[nodiscard]] Slot find(std::span<const TokenId> leader) const;
    /// Does what find() does; CachebackTree queries both kinds of tables by this name.
    [[nodiscard]] Slot query(std::span<const TokenId> leader) const { return find(leader); }
    /// first_follower() returns the most frequent follower of a leader (every leader has at least one), next_follower()
    /// the next less frequent one; kNone after the last.
    [[nodiscard]] Slot first_follower(Slot leader) const { return first_[leader]; }
    [[nodiscard]] Slot next_follower(Slot follower) const { return is_last_[follower] ? kNone : follower + 1; }
    /// Returns the follower's tokens [follower_tokens()], valid as long as the table.
    [[nodiscard]] std::span<const TokenId> follower(Slot follower) const {
        return followers_.subspan(follower * follower_tokens_, follower_tokens_);
    }
    /// Returns the leader's tokens [leader_tokens()], valid as long as the table.
    [[nodiscard]] std::span<const TokenId> leader(Slot leader) const {
        return leaders_.subspan(leader * leader_tokens_, leader_tokens_);
    }

    [[nodiscard]] std::size_t leader_tokens() const { return leader_tokens_; }
    [[nodiscard]] std::size_t follower_tokens() const { return follower_tokens_; }
    [[nodiscard]] std::size_t n_leaders() const { return first_.size() - 1; }
    [[nodiscard]] std::size_t n_followers() const { return is_last_.size(); }
    /// Returns the bytes of memory besides the mapped file.
    [[nodiscard]] std::size_t memory_bytes() const;

private:
    void check_leaders(const TableReader& fields, std::int64_t vocab);
    void check_followers(const TableReader& fields, std::int64_t vocab);

    TableFile file_;  // keeps the mapping that the spans point into
    std::size_t leader_tokens_ = 0, follower_tokens_ = 0;
    std::span<const TokenId> leaders_, followers_;
    std::span<const std::uint32_t> first_;  // [n_leaders + 1]: first follower of each leader
    // [vocab + 1]: the first leader that starts with each token. Computed at opening.
    std::vector<std::uint32_t> by_first_token_;
    // [n_followers]: whether a follower is the last of its leader. Computed at opening.
    std::vector<bool> is_last_;
};

}  // namespace slipstream::draft
