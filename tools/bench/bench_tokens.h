// Token ids that a benchmark feeds: tokenized text, or seeded random ids.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/model/model_config.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream::tools {

/// Returns `n` ids in [0, vocab), the same in every run.
[[nodiscard]] std::vector<TokenId> seeded_tokens(std::int64_t n, std::int64_t vocab);

/// Returns the tokens that the model expects before a text: BOS or none.
[[nodiscard]] std::vector<TokenId> start_tokens(const Tokenizer& tokenizer);

/// Tokenizes `text` without BOS. Throws FormatError if a token id is outside the vocabulary of `config`, Interrupted
/// after a signal.
[[nodiscard]] std::vector<TokenId> text_tokens(const Tokenizer& tokenizer, std::string_view text,
                                               const ModelConfig& config);

/// Returns whether most 8-token sequences after the first `n_prompt` tokens occurred earlier, in the prompt or after
/// it. Returns false if fewer than 32 tokens follow the prompt.
[[nodiscard]] bool repeats_itself(std::span<const TokenId> text, std::int64_t n_prompt);

}  // namespace slipstream::tools
