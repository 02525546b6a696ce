#include "runtime/loop/logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace slipstream {

TokenLogprob token_logprob(std::span<const float> logits, TokenId id, int n_best) {
    const double greatest = *std::ranges::max_element(logits);
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - greatest);
    const double log_sum = greatest + std::log(sum);
    const auto logprob = [&](TokenId token) {
        return static_cast<float>(static_cast<double>(logits[token]) - log_sum);
    };
    TokenLogprob result{.id = id, .logprob = logprob(id)};
    std::vector<TokenId> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    const auto n = std::min<std::ptrdiff_t>(n_best, std::ssize(ids));
    std::ranges::partial_sort(ids, ids.begin() + n, [&](TokenId a, TokenId b) {
        const float x = logits[a];
        const float y = logits[b];
        return x != y ? x > y : a < b;
    });
    for (std::ptrdiff_t i = 0; i < n; ++i) result.best.push_back({ids[i], logprob(ids[i])});
    return result;
}

void RecordingVerifier::verify(const TokenTree& tree, const LogitRows& logits, const VerifyLimits& limits,
                               std::vector<TokenId>& text, std::vector<TreeNode>& accepted) {
    const std::size_t n_before = text.size();
    inner_->verify(tree, logits, limits, text, accepted);
    if (record_ == nullptr) return;
    for (std::size_t i = 0; i < accepted.size(); ++i)
        record_->tokens.push_back(
            token_logprob(logits.row(logits_row_of(accepted[i])), text[n_before + i], record_->n_best));
}

}  // namespace slipstream
