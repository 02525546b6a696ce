// Tokens that a model's files say are never to be generated (generation_config.json, tokenizer.ggml.suppress_tokens).
#pragma once

#include <cstdint>

#include "runtime/model/model_config.h"

namespace slipstream {

/// Leaves each suppressed token once, in ascending order, without ids that are no tokens. Throws FormatError if no
/// token is left that may be generated.
void tidy_suppressed_tokens(GenerationDefaults& defaults, std::int64_t vocab);

}  // namespace slipstream
