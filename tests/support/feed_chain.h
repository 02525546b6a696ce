// Feeds tokens without a loop or a target, for tests of one forward over one KV cache.
#pragma once

#include <span>
#include <vector>

#include "runtime/cache/kv_cache.h"
#include "runtime/pass/forward.h"

namespace slipstream {

/// Runs a pass over `tokens` as a chain after the committed positions, and commits all of it. Returns the logits of the
/// last token.
inline std::vector<float> feed_chain(Forward& forward, KvCache& cache, std::span<const TokenId> tokens) {
    std::vector<NodeId> nodes;
    for (std::size_t i = 0; i < tokens.size(); ++i)
        nodes.push_back(cache.add_node(nodes.empty() ? kCommittedTip : nodes.back()));
    const auto last = static_cast<std::int32_t>(tokens.size()) - 1;
    const ConstTensorView logits = forward.run(cache, tokens, nodes, {&last, 1});
    std::vector<float> row(float_row(logits, 0), float_row(logits, 0) + logits.cols());
    cache.commit(forward.exec(), nodes);
    return row;
}

}  // namespace slipstream
