#include "draft/papers/ngrammys_shape.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

// With noise a draft that is rare in the context may come first: so many are looked at.
constexpr std::int64_t kDraftsToRank = 64;

}  // namespace

NgrammysShape::NgrammysShape(const NgrammysOptions& options) : options_(options) {
    CHECK(options.rows >= 1 && options.row_tokens >= 1, "{} rows of {} tokens", options.rows, options.row_tokens);
}

// Candidates for rows in the paper's order: drafts from the context, then bigrams.
void NgrammysShape::collect_rows(std::int64_t w, TokenId last, ContextNgramIndex& context, const BigramRows* bigrams,
                                 const PathNoise& noise) {
    rows_.clear();
    const ContextDrafts drafts =
        context.drafts(noise.present() ? std::max(options_.rows, kDraftsToRank) : options_.rows, w);
    for (const ContextDraft& draft : drafts.best) rows_.push_back({.draft = draft, .first = draft.tokens.front()});
    for (Row& row : rows_) {
        std::int64_t count = 0;
        for (const ContextDraft& draft : drafts.best)
            if (draft.tokens.front() == row.first) count += draft.count;
        row.probability = static_cast<float>(count) / static_cast<float>(drafts.n_places + 1);
    }
    if (bigrams == nullptr) return;
    const std::span<const std::int32_t> tokens = bigrams->tokens(last);
    const std::span<const Half> probabilities = bigrams->probabilities(last);
    for (std::size_t i = 0; i < tokens.size(); ++i)
        rows_.push_back({.draft = {}, .first = tokens[i], .probability = to_float(probabilities[i])});
}

void NgrammysShape::grow(TokenTree& tree, const ShapeRequest& request, ContextNgramIndex& context,
                         const BigramRows* bigrams) {
    CHECK(context.text().size() == request.text.size(), "an index of {} tokens, a text of {}", context.text().size(),
          request.text.size());
    const std::int64_t w = std::min(options_.row_tokens, request.max_depth);
    if (w < 1) return;
    const PathNoise noise = request.noise != nullptr ? *request.noise : PathNoise();
    // Of a node at depth d: the root's position + d.
    const auto root_position = static_cast<std::int64_t>(request.text.size()) - 1;
    collect_rows(w, request.text.back(), context, bigrams, noise);
    if (noise.present()) {
        for (Row& row : rows_) row.rank = noise.rank(row.probability, root_position + 1, row.first);
        std::ranges::stable_sort(rows_, [](const Row& a, const Row& b) { return a.rank > b.rank; });
    }
    std::int64_t n_rows = 0;
    for (auto row = rows_.begin(); row != rows_.end() && n_rows < options_.rows; ++row) {
        const std::int32_t size_before = tree.size();
        std::int32_t node = 0;
        TokenId token = row->first;
        for (std::int64_t depth = 1; token >= 0; ++depth) {
            if (const auto present = tree.child(node, token)) {
                node = *present;
            } else {
                if (tree.size() >= request.budget) return;
                node = tree.add(node, token);
            }
            if (depth == w) break;
            token = row->draft.tokens.empty() ? bigrams->best(token, root_position + depth + 1, noise)
                                              : row->draft.tokens[static_cast<std::size_t>(depth)];
        }
        if (tree.size() > size_before) ++n_rows;
    }
}

}  // namespace slipstream::draft
