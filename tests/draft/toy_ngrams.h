// Made-up tables of model n-grams, for tests of what reads them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "draft/tables/model_ngrams.h"

namespace slipstream::draft {

/// Rows of k random tokens with falling probabilities that sum to 0.8 or so; the last token has no candidates.
[[nodiscard]] inline BigramTable toy_bigrams(std::int64_t vocab, std::int64_t k, std::uint32_t seed) {
    std::mt19937 random(seed);
    BigramTable table{.vocab = vocab, .k = k};
    std::vector<std::int32_t> ids(static_cast<std::size_t>(vocab));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
    for (std::int64_t token = 0; token < vocab; ++token) {
        std::ranges::shuffle(ids, random);
        double p = 0.3 + 0.1 * static_cast<double>(random() % 3);
        for (std::int64_t i = 0; i < k; ++i, p *= 0.6) {
            const bool last = token + 1 == vocab;
            table.tokens.push_back(last ? -1 : ids[i]);
            table.log_p.push_back(last ? Half{} : to_half(static_cast<float>(std::log(p))));
        }
    }
    return table;
}

[[nodiscard]] inline std::shared_ptr<const BigramTable> shared_toy_bigrams(std::int64_t vocab, std::int64_t k,
                                                                           std::uint32_t seed) {
    return std::make_shared<const BigramTable>(toy_bigrams(vocab, k, seed));
}

}  // namespace slipstream::draft
