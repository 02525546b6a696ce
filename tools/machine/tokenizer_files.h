// A tokenizer without a model around it: a tokenizer.json, a tokenizer.model (SentencePiece, or tiktoken ranks), a
// vocab.json with its merges.txt, a directory that holds some of them, a GGUF file with a vocabulary and no weights, or
// any model.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "runtime/formats/model_files.h"

namespace slipstream::tools {

/// Where the tokenizer of `path` is to be read from. Throws as ModelFiles::open() does where it is none of these.
[[nodiscard]] TokenizerSource find_tokenizer_source(const std::filesystem::path& path);

/// What is to be said of a GGUF file with a byte-level vocabulary that does not name its pre-tokenizer: its ids are a
/// guess.
[[nodiscard]] std::optional<std::string> pre_tokenizer_note(const TokenizerSource& source);

}  // namespace slipstream::tools
