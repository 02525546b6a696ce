// The vocabulary of a GGUF file whose tokenizer.ggml.model is "gemma4": merges over characters, spaces written as "▁",
// byte tokens for characters without a token.
#pragma once

#include <memory>

#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

/// Returns the tokenizer of the vocabulary of a GGUF file. The file says nothing of how text is cut: it is cut between
/// newlines and other characters, and a run of newlines that is a token is not merged (llama.cpp, llama-vocab.cpp).
/// Throws FormatError if the arrays contradict each other.
[[nodiscard]] std::unique_ptr<Tokenizer> character_bpe_from_gguf(const PlainVocabulary& vocabulary);

}  // namespace slipstream
