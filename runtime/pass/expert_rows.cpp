#include "runtime/pass/expert_rows.h"

#include <algorithm>
#include <numeric>

namespace slipstream {

ExpertRows::ExpertRows(const ModelConfig& config, std::int64_t max_tokens) {
    const std::int64_t n_chosen =
        config.largest([](const LayerConfig& layer) { return layer.feed_forward.experts.n_chosen; });
    const std::int64_t n_experts =
        config.largest([](const LayerConfig& layer) { return layer.feed_forward.experts.n_experts; });
    const auto rows = static_cast<std::size_t>(max_tokens * n_chosen);
    chosen_.resize(rows);
    chosen_weights_.resize(rows);
    tokens_.reserve(rows);
    weights_.reserve(rows);
    places_.resize(rows);
    std::iota(places_.begin(), places_.end(), 0);
    first_rows_.reserve(static_cast<std::size_t>(n_experts) + 1);
}

std::int64_t ExpertRows::sort(const ExpertsConfig& experts, std::int64_t n_tokens) {
    const auto rows = static_cast<std::size_t>(n_tokens * experts.n_chosen);
    first_rows_.assign(static_cast<std::size_t>(experts.n_experts) + 1, 0);
    for (std::size_t i = 0; i < rows; ++i) {
        if (chosen_[i] < 0) return static_cast<std::int64_t>(i) / experts.n_chosen;
        ++first_rows_[chosen_[i]];
    }
    std::exclusive_scan(first_rows_.begin(), first_rows_.end(), first_rows_.begin(), std::int64_t{0});
    tokens_.resize(rows);
    weights_.resize(rows);
    for (std::size_t i = 0; i < rows; ++i) {
        const auto row = static_cast<std::size_t>(first_rows_[chosen_[i]]++);
        tokens_[row] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) / experts.n_chosen);
        weights_[row] = chosen_weights_[i];
    }
    // Each number is now where the next expert's rows begin.
    std::copy_backward(first_rows_.begin(), first_rows_.end() - 1, first_rows_.end());
    first_rows_.front() = 0;
    return -1;
}

}  // namespace slipstream
