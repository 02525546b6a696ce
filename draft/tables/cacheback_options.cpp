#include "draft/tables/cacheback_options.h"

#include <string_view>

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace slipstream::draft {

namespace {

void check(std::string_view name, std::int64_t value, std::int64_t least, std::int64_t most) {
    if (value < least || value > most)
        throw RequestError(fmt::format("--cacheback {}={}: give a number from {} to {}", name, value, least, most));
}

}  // namespace

void check_cacheback_options(const CachebackOptions& options) {
    check("ll", options.leader_tokens, 1, kMaxLeaderTokens);
    check("fl", options.follower_tokens, 1, kMaxFollowerTokens);
    check("lc", options.max_leaders, 1, std::int64_t{1} << 28);
    check("fc", options.max_followers, 1, std::int64_t{1} << 20);
    check("tdl", options.tree_tokens, 2, 1 << 20);
    check("crt", options.reserved_tokens, 0, options.tree_tokens - 2);
}

}  // namespace slipstream::draft
