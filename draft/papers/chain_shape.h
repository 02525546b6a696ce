// A chain: the best child of the best child and so on, gamma guesses deep. The shape of classical speculative decoding
// (Leviathan et al. 2023, arXiv 2211.17192, algorithm 1), from any source.
#pragma once

#include <cstdint>

#include "draft/rungs/model_source.h"
#include "draft/sources/table_source.h"

namespace slipstream::draft {

/// Grows a chain of at most `gamma` guesses under node 0 of `tree` (node 0 only), inside the request's limits; shorter
/// where the source has nothing more to say.
void propose_chain(TokenTree& tree, const ShapeRequest& request, std::int64_t gamma, TableSource& source);
/// The same from a source with passes of its own, one a guess; its max_nodes() is one more limit.
void propose_chain(TokenTree& tree, const ShapeRequest& request, std::int64_t gamma, ModelSource& source);

}  // namespace slipstream::draft
