// Reads the tokenizer of a GGUF file, its tokenizer.ggml.* keys, decoded and checked. Works for vocabulary-only files
// too.
#pragma once

#include "runtime/formats/gguf_file.h"
#include "runtime/formats/model_files.h"

namespace slipstream {

/// Returns the vocabulary. Throws FormatError if the tokens are missing or empty, if an array has the wrong length or
/// type, or if tokenizer.ggml.model is missing. Special ids outside the vocabulary count as not given, since such files
/// exist.
[[nodiscard]] GgufVocabulary read_gguf_vocabulary(const GgufFile& file);

/// Does the same for a file on disk, which may have no tensors. Throws IoError too.
[[nodiscard]] GgufVocabulary read_gguf_vocabulary(const std::filesystem::path& path);

}  // namespace slipstream
