// Reads the tokenizer of a GGUF file, its tokenizer.ggml.* keys, decoded and checked. The file may have a vocabulary
// only, and no tensors.
#pragma once

#include "runtime/formats/gguf_file.h"
#include "runtime/formats/model_files.h"

namespace slipstream {

/// Returns the vocabulary of a parsed file. Throws FormatError if the tokens are missing or empty, if an array has the
/// wrong length or type, or if tokenizer.ggml.model is missing. Special ids outside the vocabulary count as not given,
/// since such files exist.
[[nodiscard]] GgufVocabulary read_gguf_vocabulary(const GgufFile& file);

/// Returns the vocabulary of the GGUF file at `path`. Throws IoError, Unsupported, FormatError.
[[nodiscard]] GgufVocabulary read_gguf_vocabulary(const std::filesystem::path& path);

}  // namespace slipstream
