// What a generation loop of a budget, and a self-check beside it, need of forward passes and caches.
#pragma once

#include <cstdint>

#include "runtime/pass/forward.h"

namespace slipstream {

/// Nodes of a cache, and tokens of one pass: a prefill chunk and a tree of `budget` nodes.
[[nodiscard]] inline std::int64_t scratch_nodes_for(std::int64_t budget) {
    return kPrefillChunkTokens + budget;
}

/// Limits of the forward whose passes the loop runs.
[[nodiscard]] inline ForwardLimits forward_limits_for(std::int64_t budget) {
    return {.max_tokens = scratch_nodes_for(budget), .max_logit_rows = budget};
}

/// Limits of the forward that computes again what SelfCheck compares, `max_tokens` tokens at a time. It takes no
/// graphs, so that graphs are checked against ops launched one by one.
[[nodiscard]] inline ForwardLimits check_forward_limits(std::int64_t max_tokens = kPrefillChunkTokens) {
    return {.max_tokens = max_tokens, .max_logit_rows = 1, .graphs = GraphUse::Never};
}

}  // namespace slipstream
