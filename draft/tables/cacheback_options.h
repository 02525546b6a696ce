// The settings of Cacheback's tables, named as in the paper (Ma, Gim, Zhong 2025, section 3), and which make sense.
#pragma once

#include <cstdint>

namespace slipstream::draft {

inline constexpr std::int64_t kMaxLeaderTokens = 16;    // LL
inline constexpr std::int64_t kMaxFollowerTokens = 64;  // FL

struct CachebackOptions {
    std::int64_t leader_tokens = 1;                    // LL
    std::int64_t follower_tokens = 3;                  // FL
    std::int64_t max_leaders = std::int64_t{1} << 20;  // LC
    std::int64_t max_followers = 128;                  // FC, of a leader
    std::int64_t tree_tokens = 96;                     // TDL: most nodes of its tree, node 0 included
    std::int64_t reserved_tokens = 16;                 // CRT: of them, kept for level 2 and deeper
};

/// Throws RequestError naming the setting as --cacheback spells it, what was given, and what may be given.
void check_cacheback_options(const CachebackOptions& options);

}  // namespace slipstream::draft
