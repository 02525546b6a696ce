// The tree of N-Grammys (Stewart et al. 2024, section 4.3, "mixed strategy"): k rows of w tokens, as many as there are
// from the context (context_ngram.h), the rest extended bigrams of the model, rows that are there already passed over.
// The paper runs the rows as a batch; here they are a trie under node 0, so that shared beginnings are computed once.
// Where the budget holds less than all rows, later rows are cut.
//
// With noise (E2; not in the paper) rows from both are put in the order of log p + gumbel of their first token,
// where p is the share of the places that a first token followed, or the bigram's probability.
#pragma once

#include <cstdint>

#include "draft/sources/model_bigram.h"
#include "draft/sources/table_source.h"

namespace slipstream::draft {

struct NgrammysOptions {
    std::size_t rows = 10;         // k
    std::int64_t row_tokens = 10;  // w
};
/// Whether rows come from the text.
enum class ContextRows : std::uint8_t { None, Taken };

/// Hangs the rows under node 0 of `tree`. `bigrams`: null where there are none.
void grow_ngrammys(TokenTree& tree, const ShapeRequest& request, ContextRows context, ModelBigram* bigrams,
                   const NgrammysOptions& options = {});

}  // namespace slipstream::draft
