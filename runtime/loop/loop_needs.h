// What a generation loop with a tree budget, and its self-check, need of forward passes and caches.
#pragma once

#include <cstdint>

#include "runtime/pass/forward.h"

namespace slipstream {

/// Returns the most nodes of a cache, which is also the most tokens of one pass: a prefill chunk and a tree of `budget`
/// nodes.
[[nodiscard]] inline std::int64_t scratch_nodes_for(std::int64_t budget) {
    return kPrefillChunkTokens + budget;
}

/// Returns the limits of the Forward that runs the loop's passes, over trees of up to `budget` nodes.
[[nodiscard]] inline ForwardLimits forward_limits_for(std::int64_t budget) {
    return {.max_tokens = scratch_nodes_for(budget), .max_logit_rows = budget, .max_drafts = budget};
}

/// Returns the limits of the forward that recomputes what SelfCheck compares, up to `max_tokens` tokens per pass;
/// `max_drafts`: of the caches, as ForwardLimits::max_drafts. It uses no graphs, so that graphs are checked against ops
/// launched one by one.
[[nodiscard]] inline ForwardLimits check_forward_limits(std::int64_t max_tokens = kPrefillChunkTokens,
                                                        std::int64_t max_drafts = 0) {
    return {.max_tokens = max_tokens, .max_logit_rows = 1, .max_drafts = max_drafts, .graphs = GraphUse::Never};
}

}  // namespace slipstream
