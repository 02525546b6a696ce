// Cacheback's frozen table (Ma, Gim, Zhong 2025, section 3.3): the most frequent leaders of a corpus, and for each the
// followers that came behind it most often. It never changes; it lies in a table file and is used where it is mapped.
//
// Section "cacheback-frozen": LL, FL, ids in the vocabulary, the tokenizer's fingerprint, then the leaders in ascending
// order [n_leaders][LL], where the followers of each begin [n_leaders + 1], and the followers [n_followers][FL], those
// of a leader by falling frequency.
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

/// What the table was made for; a table for other ids would guess nonsense.
struct FrozenTableKey {
    std::int64_t vocab = 0;                   // ids are below it
    std::uint64_t tokenizer_fingerprint = 0;  // tokenizer_fingerprint() of who made the ids
};

class FrozenTable {
public:
    using Slot = std::uint32_t;
    static constexpr Slot kNone = ~Slot{0};

    /// Checks everything that is used later: orders, bounds, ids. Throws IoError, FormatError (damaged, or no frozen
    /// table), RequestError where it was made for another tokenizer.
    FrozenTable(TableFile file, const FrozenTableKey& key);
    [[nodiscard]] static FrozenTable open(const std::filesystem::path& path, const FrozenTableKey& key);

    /// The leader [leader_tokens()], or kNone.
    [[nodiscard]] Slot find(std::span<const TokenId> leader) const;
    [[nodiscard]] Slot query(std::span<const TokenId> leader) const { return find(leader); }
    /// Its followers by falling frequency; kNone behind the last. Every leader has one.
    [[nodiscard]] Slot first_follower(Slot leader) const { return first_[leader]; }
    [[nodiscard]] Slot next_follower(Slot follower) const { return is_last_[follower] ? kNone : follower + 1; }
    [[nodiscard]] std::span<const TokenId> follower(Slot follower) const {
        return followers_.subspan(follower * follower_tokens_, follower_tokens_);
    }
    [[nodiscard]] std::span<const TokenId> leader(Slot leader) const {
        return leaders_.subspan(leader * leader_tokens_, leader_tokens_);
    }

    [[nodiscard]] std::size_t leader_tokens() const { return leader_tokens_; }
    [[nodiscard]] std::size_t follower_tokens() const { return follower_tokens_; }
    [[nodiscard]] std::size_t n_leaders() const { return first_.size() - 1; }
    [[nodiscard]] std::size_t n_followers() const { return is_last_.size(); }
    /// In memory, besides the mapping.
    [[nodiscard]] std::size_t memory_bytes() const;

private:
    void check_leaders(const TableReader& fields, std::int64_t vocab);
    void check_followers(const TableReader& fields, std::int64_t vocab);

    TableFile file_;  // keeps the mapping that the spans point into
    std::size_t leader_tokens_ = 0, follower_tokens_ = 0;
    std::span<const TokenId> leaders_, followers_;
    std::span<const std::uint32_t> first_;  // [n_leaders + 1]
    // Made at opening: where leaders of each first token begin [vocab + 1], and which followers end a leader's.
    std::vector<std::uint32_t> by_first_token_;
    std::vector<bool> is_last_;
};

}  // namespace slipstream::draft
