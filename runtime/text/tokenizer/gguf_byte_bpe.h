// The byte-level vocabulary of a GGUF file: tokenizer.ggml.model "gpt2", with merges and the name of a pre-tokenizer.
#pragma once

#include <memory>

#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

/// Throws FormatError; Unsupported naming a pre-tokenizer that is not known.
[[nodiscard]] std::unique_ptr<Tokenizer> byte_bpe_from_gguf(const PlainVocabulary& vocabulary);

}  // namespace slipstream
