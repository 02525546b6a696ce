// Token ids for a bench to feed: text through the model's tokenizer, or ids out of a seed.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/model/model_config.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream::tools {

/// `n` ids in [0, vocab), always the same.
[[nodiscard]] std::vector<TokenId> seeded_tokens(std::int64_t n, std::int64_t vocab);

/// What the model expects before a text: BOS or nothing.
[[nodiscard]] std::vector<TokenId> start_tokens(const Tokenizer& tokenizer);

/// Ids of a text, without BOS. FormatError where one is not in the vocabulary of `config`;
/// Interrupted after a signal.
[[nodiscard]] std::vector<TokenId> text_tokens(const Tokenizer& tokenizer, std::string_view text,
                                               const ModelConfig& config);

/// Whether most of what stands behind the first `n_prompt` tokens is eight tokens that stood before, there or in the
/// prompt. False of fewer than 32.
[[nodiscard]] bool repeats_itself(std::span<const TokenId> text, std::int64_t n_prompt);

}  // namespace slipstream::tools
