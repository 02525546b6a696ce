// The tree of N-Grammys (Stewart et al. 2024, section 4.3, "mixed strategy"): k rows of w tokens. As many as possible
// are n-grams of the context (context_ngram.h), the rest are extended bigrams of the model; rows that are already there
// are skipped. The paper runs the rows as a batch. Here they are a trie under node 0, so that shared prefixes are
// computed once. If the budget is too small for all rows, later rows are cut.
//
// With noise (drafter-invariant sampling, E2; not in the paper) the rows of both kinds are ordered by log p + gumbel of
// their first token, where p is the fraction of places that the first token followed, or the bigram's probability.
#pragma once

#include <cstdint>

#include "draft/paper_tree.h"
#include "draft/sources/model_bigram.h"
#include "draft/sources/table_source.h"

namespace slipstream::draft {

struct NgrammysOptions {
    std::size_t rows = 10;         // k, number of rows in the tree
    std::int64_t row_tokens = 10;  // w, number of tokens in a row
};
/// Whether rows are taken from the n-grams of the sequence as well.
enum class ContextRows : std::uint8_t { None, Taken };

/// Adds rows of tokens as branches under node 0 of `tree`, within the limits of `request`: n-grams of the sequence if
/// `context` is Taken, then extended bigrams of the model. `bigrams` may be null: then there are only rows of the
/// sequence.
void grow_ngrammys(TokenTree& tree, const ShapeRequest& request, ContextRows context, ModelBigram* bigrams,
                   const NgrammysOptions& options = {});

}  // namespace slipstream::draft
