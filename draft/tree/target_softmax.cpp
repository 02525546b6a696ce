#include "draft/tree/target_softmax.h"

#include <algorithm>
#include <cmath>

#include "draft/logit_row.h"
#include "runtime/loop/sampling/greatest.h"

namespace slipstream::draft {

TargetSoftmax target_softmax(std::span<const float> logits, double temperature) {
    const float greatest = greatest_of(logits);
    return {.greatest = greatest,
            .inverse_temperature = static_cast<float>(1.0 / temperature),
            .sum = std::exp(log_normaliser(logits, greatest, static_cast<float>(temperature)))};
}

TargetProbabilities::TargetProbabilities(const LogitRows& rows, std::int64_t row, double temperature) {
    if (rows.on_device()) head_ = rows.top(row);
    if (head_.ids.empty() || head_.sum_temperature != temperature) {
        logits_ = rows.row(row);
        target_ = target_softmax(logits_, temperature);
        return;
    }
    target_ = {.greatest = head_.logits.front(),
               .inverse_temperature = static_cast<float>(1.0 / temperature),
               .sum = head_.sum};
    const auto n_beyond = static_cast<float>(rows.cols() - std::ssize(head_.ids));
    if (head_.complete || n_beyond <= 0.0F) return;
    float left = 1.0F;
    for (const float logit : head_.logits) left -= target_.probability(logit);
    beyond_ = std::clamp(left / n_beyond, 0.0F, target_.probability(head_.logits.back()));
}

float TargetProbabilities::probability(TokenId token) const {
    if (!logits_.empty()) return target_.probability(logits_[token]);
    const auto at = std::ranges::find(head_.ids, token) - head_.ids.begin();
    if (at == std::ssize(head_.ids)) return beyond_;
    return target_.probability(head_.logits[at]);
}

}  // namespace slipstream::draft
