// Grows a chain from a table source: the best child of the best child, and so on. papers/chain_shape.h names the paper
// and grows chains from models.
#pragma once

#include <cstdint>

#include "draft/paper_tree.h"
#include "draft/sources/table_source.h"

namespace slipstream::draft {

/// Returns the length of a chain of at most `gamma` draft tokens under node 0 of `tree`, inside the request's limits;
/// below 1 if there is room for none. CHECKs that the tree is node 0 only, with the last token of the text.
[[nodiscard]] std::int64_t chain_length(const TokenTree& tree, const ShapeRequest& request, std::int64_t gamma);

/// Grows a chain of at most `gamma` draft tokens under node 0 of `tree` (node 0 only), inside the request's limits;
/// shorter if the source has no more proposals.
void propose_chain(TokenTree& tree, const ShapeRequest& request, std::int64_t gamma, TableSource& source);

}  // namespace slipstream::draft
