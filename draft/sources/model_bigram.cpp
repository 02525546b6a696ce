#include "draft/sources/model_bigram.h"

#include <algorithm>
#include <array>
#include <utility>

#include "draft/sources/best_proposals.h"
#include "draft/sources/rank_cells.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

ModelBigram::ModelBigram(std::shared_ptr<const BigramRows> table, const ModelBigramOptions& options)
    : table_(std::move(table)), options_(options) {
    CHECK(options.rows >= 1 && options.row_tokens >= 1, "{} rows of {} tokens", options.rows, options.row_tokens);
    proposed_.resize(static_cast<std::size_t>(std::min(options.rows, table_->k())));
}

std::uint16_t ModelBigram::n_cells() const {
    return kRankProbabilityCells;
}

Cursor ModelBigram::root(std::span<const TokenId> text) {
    return static_cast<Cursor>(text.back());
}

Cursor ModelBigram::advance(Cursor, TokenId token) {
    return static_cast<Cursor>(token);
}

std::size_t ModelBigram::propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                 std::span<Proposal> out) {
    const auto token = static_cast<TokenId>(cursor);
    const std::span<const std::int32_t> tokens = table_->tokens(token);
    const std::span<const Half> probabilities = table_->probabilities(token);
    std::array<Proposal, kMaxCandidates> found;
    std::size_t n = std::min(tokens.size(), found.size());
    for (std::size_t i = 0; i < n; ++i) found[i] = {.token = tokens[i], .probability = to_float(probabilities[i])};
    if (noise.present()) {
        n = take_best(std::span(found).first(n), position, noise, out);
    } else {
        n = std::min(n, out.size());
        std::copy_n(found.begin(), n, out.begin());
    }
    for (std::size_t i = 0; i < n; ++i) out[i].cell = rank_probability_cell(i, out[i].probability);
    return n;
}

void ModelBigram::propose_shape(TokenTree& tree, const ShapeRequest& request) {
    const auto root_position = static_cast<std::int64_t>(request.text.size()) - 1;
    const std::int64_t depth = std::min(options_.row_tokens, request.max_depth);
    if (depth < 1) return;
    const PathNoise noise = request.noise != nullptr ? *request.noise : PathNoise();
    const std::size_t n = propose(root(request.text), root_position + 1, noise, proposed_);
    for (std::size_t row = 0; row < n; ++row) {
        TokenId token = proposed_[row].token;
        std::int32_t node = 0;
        for (std::int64_t at = 1; at <= depth && token >= 0; ++at) {
            if (tree.size() >= request.budget) return;
            node = tree.add(node, token);
            token = table_->best(token, root_position + at + 1, noise);
        }
    }
}

}  // namespace slipstream::draft
