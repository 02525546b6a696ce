// A chain of draft tokens: the best child of the best child and so on, gamma tokens deep. The shape of classical
// speculative decoding (Leviathan et al. 2023, arXiv 2211.17192, algorithm 1), from any source.
#pragma once

#include <cstdint>
#include <functional>

#include "draft/models/model_source.h"
#include "draft/paper_tree.h"
#include "draft/sources/table_chain.h"

namespace slipstream::draft {

/// Most draft tokens of a chain whose length adapts to the measured acceptance.
inline constexpr std::int64_t kLongestChain = 32;

/// A length of chains, and the rate at which such chains commit tokens.
struct ChainChoice {
    std::int64_t guesses = 1;  // length in draft tokens
    double tokens_per_second = 0.0;
};
/// Returns the length, 1 to `longest` draft tokens, with which chains commit most tokens per second, if each draft
/// token is accepted with probability `acceptance` given that the one before it was (Leviathan et al. 2023, section
/// 3.4). `seconds` must return the time to draft and verify a chain of that length.
[[nodiscard]] ChainChoice best_chain(double acceptance, std::int64_t longest,
                                     const std::function<double(std::int64_t guesses)>& seconds);

/// Grows a chain of at most `gamma` draft tokens under node 0 of `tree` (node 0 only) from a source with passes of its
/// own, one pass per token; inside the request's limits and source.max_nodes(). Shorter if the source has no more
/// proposals. sources/table_chain.h is the overload for tables.
void propose_chain(TokenTree& tree, const ShapeRequest& request, std::int64_t gamma, ModelSource& source);

}  // namespace slipstream::draft
