// The tokenizer of a GGUF file: its tokenizer.ggml.* keys, decoded and checked. Works on vocabulary-only files as well.
#pragma once

#include "runtime/formats/gguf_file.h"
#include "runtime/formats/model_files.h"

namespace slipstream {

/// Reads tokenizer.ggml.* . Throws FormatError where the tokens are missing or empty, an array has another length or
/// type than it must, or the model's name is absent. Special ids outside the vocabulary are taken as not given (files
/// carry such).
[[nodiscard]] GgufVocabulary read_gguf_vocabulary(const GgufFile& file);

/// The same, from a file on disk that may hold no tensors at all.
[[nodiscard]] GgufVocabulary read_gguf_vocabulary(const std::filesystem::path& path);

}  // namespace slipstream
