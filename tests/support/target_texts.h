// Prompts and generation for targets over tiny models with 97 tokens, and the results that tests compare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/loop/target.h"
#include "tests/support/logged_generation.h"

namespace slipstream {

inline constexpr std::int64_t kTinyVocab = 97;
inline constexpr SamplerOptions kTinySampling{.temperature = 0.9, .seed = 4};

[[nodiscard]] inline std::vector<TokenId> prompt_of(std::int64_t n) {
    std::vector<TokenId> prompt;
    for (std::int64_t i = 0; i < n; ++i) prompt.push_back(static_cast<TokenId>((i * 31 + i / 7 + 7) % kTinyVocab));
    return prompt;
}

[[nodiscard]] inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Returns the prompt and `n_tokens` generated tokens. If `checked_by` is not null, each pass is checked by it.
[[nodiscard]] inline Generated generate(Target& target, const std::vector<TokenId>& prompt, std::int64_t n_tokens,
                                        Proposer& proposer, std::int64_t budget, Target* checked_by = nullptr) {
    std::optional<SelfCheck> check;
    if (checked_by != nullptr) check.emplace(*checked_by);
    Generated generated = logged_generation(target, prompt, n_tokens, proposer, budget, kTinySampling, kTinyVocab,
                                            check ? &*check : nullptr);
    if (check) {
        EXPECT_GE(check->figures().tokens, n_tokens);
    }
    return generated;
}

[[nodiscard]] inline Generated plainly(Target& target, const std::vector<TokenId>& prompt, std::int64_t n_tokens) {
    NoProposer nothing;
    return generate(target, prompt, n_tokens, nothing, 1);
}

/// Returns the bytes of the full KV chunks of `target`, one layer after the other, from the first chunk on that
/// `ringed` still keeps in the layer. `ringed`: the target itself, or one with the same text whose windowed layers keep
/// rings.
[[nodiscard]] inline std::vector<std::byte> kv_of(Target& target, const Target& ringed) {
    std::vector<std::byte> all;
    for (std::int64_t layer = 0; layer < target.shape().n_layers; ++layer) {
        std::vector<std::byte> chunk(target.shape().kv[layer].chunk_bytes());
        for (std::int64_t i = ringed.first_kept_chunk(layer); i < target.n_committed() / kChunkTokens; ++i) {
            target.read_chunk(layer, i, chunk.data());
            all.insert(all.end(), chunk.begin(), chunk.end());
        }
    }
    return all;
}
[[nodiscard]] inline std::vector<std::byte> kv_of(Target& target) {
    return kv_of(target, target);
}

}  // namespace slipstream
