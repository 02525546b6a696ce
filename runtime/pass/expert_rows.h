// The rows (token, expert that it chose) of a pass in a layer, by expert: the order in which experts are computed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/model_config.h"

namespace slipstream {

class ExpertRows {
public:
    /// Takes memory for passes of up to `max_tokens` tokens, so that later calls allocate nothing.
    ExpertRows(const ModelConfig& config, std::int64_t max_tokens);

    // What choose_experts() writes, [n_tokens, n_chosen]: chosen experts, ascending for each token, and their weights.
    [[nodiscard]] std::int32_t* chosen() { return chosen_.data(); }
    [[nodiscard]] float* chosen_weights() { return chosen_weights_.data(); }

    /// Sorts what was chosen by `n_tokens` tokens: rows in ascending order of experts, then of tokens. Returns the
    /// first token whose choice is not valid (an id of -1); -1 if all are.
    [[nodiscard]] std::int64_t sort(const ExpertsConfig& experts, std::int64_t n_tokens);

    /// Returns the first row of an expert; for n_experts, the number of all rows. The rows of an expert end at the
    /// first row of the next one.
    [[nodiscard]] std::int64_t first_row(std::int32_t expert) const { return first_rows_[expert]; }
    [[nodiscard]] std::int64_t n_rows(std::int32_t expert) const {
        return first_rows_[expert + 1] - first_rows_[expert];
    }
    /// [rows]: of each row the token, and the weight of its result.
    [[nodiscard]] std::span<const std::int32_t> tokens() const { return tokens_; }
    [[nodiscard]] std::span<const float> weights() const { return weights_; }
    /// Returns 0, 1, 2, ...: as many numbers as there are rows.
    [[nodiscard]] std::span<const std::int32_t> places() const { return places_; }

private:
    std::vector<std::int32_t> chosen_;
    std::vector<float> chosen_weights_;
    std::vector<std::int64_t> first_rows_;  // [n_experts + 1]
    std::vector<std::int32_t> tokens_;      // [rows]
    std::vector<float> weights_;            // [rows]
    std::vector<std::int32_t> places_;      // [rows]
};

}  // namespace slipstream
