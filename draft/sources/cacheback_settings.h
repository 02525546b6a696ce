// Which settings of Cacheback's tables make sense.
#pragma once

#include <cstdint>

#include "draft/sources/cacheback_options.h"

namespace slipstream::draft {

inline constexpr std::int64_t kMaxLeaderTokens = 16;    // LL
inline constexpr std::int64_t kMaxFollowerTokens = 64;  // FL

/// Throws RequestError naming the setting as --cacheback spells it, what was given, and what may be given.
void check_cacheback_options(const CachebackOptions& options);

}  // namespace slipstream::draft
