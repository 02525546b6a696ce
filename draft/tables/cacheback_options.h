// The settings of Cacheback's tables, named as in the paper (Ma, Gim, Zhong 2025, section 3), and their valid ranges.
#pragma once

#include <cstdint>

namespace slipstream::draft {

inline constexpr std::int64_t kMaxLeaderTokens = 16;    // most LL
inline constexpr std::int64_t kMaxFollowerTokens = 64;  // most FL

/// Settings of Cacheback's dynamic table and of the paper's tree, all in tokens or entries.
struct CachebackOptions {
    std::int64_t leader_tokens = 1;                    // LL: length of a leader
    std::int64_t follower_tokens = 3;                  // FL: length of a follower
    std::int64_t max_leaders = std::int64_t{1} << 20;  // LC: most leaders
    std::int64_t max_followers = 128;                  // FC: most followers of a leader
    std::int64_t tree_tokens = 96;                     // TDL: most nodes of the paper's tree, node 0 included
    std::int64_t reserved_tokens = 16;  // CRT: nodes of tree_tokens that are reserved for level 2 and deeper
};

/// Throws RequestError if a setting is out of range. The message names the setting as --cacheback spells it, the value
/// found, and the range.
void check_cacheback_options(const CachebackOptions& options);

}  // namespace slipstream::draft
