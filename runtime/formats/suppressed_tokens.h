// Tokens that a model's files say are never to be generated (generation_config.json, tokenizer.ggml.suppress_tokens).
#pragma once

#include <cstdint>

#include "runtime/model/model_config.h"

namespace slipstream {

/// Sorts defaults.suppressed_tokens, and removes duplicates and ids outside the vocabulary of `vocab` tokens. Throws
/// FormatError if no token is left that may be generated.
void tidy_suppressed_tokens(GenerationDefaults& defaults, std::int64_t vocab);

}  // namespace slipstream
