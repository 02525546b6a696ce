#include "draft/sources/ngrammys_shape.h"

#include <algorithm>
#include <array>

#include "draft/sources/best_proposals.h"
#include "draft/sources/context_ngram.h"

namespace slipstream::draft {

namespace {

// Most drafts from the context that are ranked if there is noise: it may be more than the tree's rows, since a draft
// that is rare in the context may then come first.
constexpr std::size_t kDraftsToRank = 64;

struct Row {
    std::span<const TokenId> tokens;  // the row's tokens; empty: an extended bigram of the model
    TokenId first = 0;                // first token of the row
    float probability = 0.0F;         // estimated probability of the first token, in (0, 1)
    float rank = 0.0F;
};

// Candidates for rows in the paper's order: n-grams of the context, then bigrams.
class Rows {
public:
    void add_drafts(const ContextDrafts& drafts, std::size_t most) {
        for (const ContextDraft& draft : drafts.best(most)) {
            std::int64_t count = 0;
            for (const ContextDraft& other : drafts.best(most))
                if (other.tokens.front() == draft.tokens.front()) count += other.count;
            rows_[n_++] = {.tokens = draft.tokens,
                           .first = draft.tokens.front(),
                           .probability = static_cast<float>(count) / static_cast<float>(drafts.n_places + 1)};
        }
    }
    void add_bigrams(ModelBigram& bigrams, const ShapeRequest& request) {
        std::array<Proposal, kMaxCandidates> found;
        const std::size_t n = bigrams.propose(bigrams.root(request.text), 0, PathNoise(), found);
        for (std::size_t i = 0; i < n; ++i)
            rows_[n_++] = {.tokens = {}, .first = found[i].token, .probability = found[i].probability};
    }
    [[nodiscard]] std::span<Row> all() { return std::span(rows_).first(n_); }

private:
    std::array<Row, kMostPlaces + kMaxCandidates> rows_;
    std::size_t n_ = 0;
};

}  // namespace

void grow_ngrammys(TokenTree& tree, const ShapeRequest& request, ContextRows context, ModelBigram* bigrams,
                   const NgrammysOptions& options) {
    const std::int64_t w = std::min(options.row_tokens, request.max_depth);
    if (w < 1) return;
    const PathNoise& noise = noise_of(request);
    // A node at depth d has position root_position + d.
    const std::int64_t root_position = std::ssize(request.text) - 1;
    Rows rows;
    if (context == ContextRows::Taken)
        rows.add_drafts(context_drafts(request.text, w),
                        noise.present() ? std::max(options.rows, kDraftsToRank) : options.rows);
    if (bigrams != nullptr) rows.add_bigrams(*bigrams, request);
    if (noise.present()) {
        for (Row& row : rows.all()) row.rank = noise.rank(row.probability, root_position + 1, row.first);
        std::ranges::stable_sort(rows.all(), [](const Row& a, const Row& b) { return a.rank > b.rank; });
    }
    std::size_t n_rows = 0;
    for (const Row& row : rows.all()) {
        if (n_rows == options.rows) return;
        const std::int32_t size_before = tree.size();
        TreeNode node = kTreeRoot;
        TokenId token = row.first;
        for (std::int64_t depth = 1; token >= 0; ++depth) {
            const auto present = tree.child(node, token);
            if (!present && tree.size() >= request.budget) return;
            node = present ? *present : tree.add(node, token);
            if (depth == w) break;
            token = row.tokens.empty() ? bigrams->best(token, root_position + depth + 1, noise) : row.tokens[depth];
        }
        if (tree.size() > size_before) ++n_rows;
    }
}

}  // namespace slipstream::draft
