// Conversations for proposers without a model: answers put together out of a few phrases, so that much repeats, of
// tokens in [0, kPhraseVocab).
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "draft/replay.h"

namespace slipstream::draft {

inline constexpr std::int64_t kPhraseVocab = 97;  // as the tiny model's

inline std::vector<TokenId> phrases(std::uint32_t seed, std::size_t n_tokens) {
    std::mt19937 random(7);  // the phrases are the same for all
    std::vector<std::vector<TokenId>> bank(12);
    for (auto& phrase : bank)
        for (std::size_t n = 4 + random() % 8; n > 0; --n) phrase.push_back(static_cast<TokenId>(random() % 90));
    random.seed(seed);
    std::vector<TokenId> text;
    while (text.size() < n_tokens) {
        const auto& phrase = bank[random() % bank.size()];
        text.insert(text.end(), phrase.begin(), phrase.end());
        if (random() % 4 == 0) text.push_back(static_cast<TokenId>(random() % 97));
    }
    text.resize(n_tokens);
    return text;
}

inline std::vector<RecordedTurn> recorded_phrases(std::uint32_t seed, std::size_t n_answer = 250) {
    return {{phrases(seed, 40), phrases(seed + 1000, n_answer)}, {phrases(seed + 2000, 10), phrases(seed + 3000, 60)}};
}

}  // namespace slipstream::draft
