// The tree of N-Grammys (Stewart et al. 2024, section 4.3, "mixed strategy"): k rows of w tokens, as many as there are
// from the context (context_ngram.h), the rest extended bigrams of the model, rows that are there already passed over.
// The paper runs the rows as a batch; here they are a trie under node 0, so that shared beginnings are computed once.
// Where the budget holds less than all rows, later rows are cut.
//
// With noise (E2; not in the paper) rows from both are put in the order of log p + gumbel of their first token,
// where p is the share of the places that a first token followed, or the bigram's probability.
#pragma once

#include <cstdint>
#include <vector>

#include "draft/papers/context_ngram.h"
#include "draft/sources/table_source.h"
#include "draft/tables/bigram_rows.h"

namespace slipstream::draft {

struct NgrammysOptions {
    std::int64_t rows = 10;        // k
    std::int64_t row_tokens = 10;  // w
};

class NgrammysShape {
public:
    explicit NgrammysShape(const NgrammysOptions& options);

    /// Hangs the rows under node 0 of `tree`. `context` has observed request.text. `bigrams`: null where there are
    /// none.
    void grow(TokenTree& tree, const ShapeRequest& request, ContextNgramIndex& context, const BigramRows* bigrams);

private:
    struct Row {
        ContextDraft draft;        // empty: an extended bigram
        TokenId first = 0;         // its first token
        float probability = 0.0F;  // of the first token
        float rank = 0.0F;
    };

    void collect_rows(std::int64_t w, TokenId last, ContextNgramIndex& context, const BigramRows* bigrams,
                      const PathNoise& noise);

    NgrammysOptions options_;
    std::vector<Row> rows_;
};

}  // namespace slipstream::draft
