// Finds a tokenizer with or without a model: a tokenizer.json, a tekken.json, a tokenizer.model (SentencePiece, or
// tiktoken ranks), a vocab.json with its merges.txt, a directory with some of these files, a GGUF file with a
// vocabulary and no weights, or any model.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "runtime/formats/model_files.h"

namespace slipstream::tools {

/// Returns the files, or the GGUF vocabulary, from which the tokenizer of `path` is read. Throws IoError, FormatError
/// or Unsupported, as ModelFiles::open() does, also if `path` is none of the above.
[[nodiscard]] TokenizerSource find_tokenizer_source(const std::filesystem::path& path);

/// Returns a note for the user if a GGUF file has a byte-level vocabulary but does not name its pre-tokenizer: its ids
/// may then differ from the model's. Returns nothing otherwise.
[[nodiscard]] std::optional<std::string> pre_tokenizer_note(const TokenizerSource& source);

}  // namespace slipstream::tools
