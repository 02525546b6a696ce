#include "tools/bench/bench_tokens.h"

#include <algorithm>
#include <set>

#include "kernels/base/philox.h"
#include "tools/engine/engine.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

constexpr PhiloxKey kSeed{.low = 1, .high = 0};

}  // namespace

std::vector<TokenId> seeded_tokens(std::int64_t n, std::int64_t vocab) {
    std::vector<TokenId> tokens;
    for (std::int64_t i = 0; i < n; ++i) {
        const PhiloxBlock words = philox4x32_10({{static_cast<std::uint32_t>(i), 0, 0, 0}}, kSeed);
        tokens.push_back(static_cast<TokenId>(words.word[0] % static_cast<std::uint64_t>(vocab)));
    }
    return tokens;
}

std::vector<TokenId> text_tokens(const Tokenizer& tokenizer, std::string_view text, const ModelConfig& config) {
    std::vector<TokenId> tokens = tokenizer.encode(text, SpecialTokens::AsText, &cancel_flag());
    check_tokens(tokens, config);
    return tokens;
}

bool repeats_itself(std::span<const TokenId> text, std::int64_t n_prompt) {
    constexpr std::int64_t kSequenceTokens = 8;
    const std::int64_t n_generated = std::ssize(text) - n_prompt;
    if (n_generated < 4 * kSequenceTokens) return false;
    std::set<std::vector<TokenId>> seen;
    std::int64_t n_repeated = 0;
    for (std::int64_t i = 0; i + kSequenceTokens <= std::ssize(text); ++i) {
        const auto sequence = text.subspan(i, kSequenceTokens);
        const bool is_new = seen.emplace(sequence.begin(), sequence.end()).second;
        if (!is_new && i >= n_prompt) ++n_repeated;
    }
    return 2 * n_repeated > n_generated - kSequenceTokens + 1;
}

std::vector<TokenId> start_tokens(const Tokenizer& tokenizer) {
    if (tokenizer.adds_bos() && tokenizer.bos_id()) return {*tokenizer.bos_id()};
    return {};
}

}  // namespace slipstream::tools
