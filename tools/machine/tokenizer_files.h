// A tokenizer without a model around it: a tokenizer.json, a tokenizer.model (SentencePiece, or tiktoken ranks), a
// vocab.json with its merges.txt, a directory that holds some of them, a GGUF file with a vocabulary and no weights, or
// any model.
#pragma once

#include <filesystem>

#include "runtime/formats/model_files.h"

namespace slipstream::tools {

/// Where the tokenizer of `path` is to be read from. Throws as ModelFiles::open() does where it is none of these.
[[nodiscard]] TokenizerSource find_tokenizer_source(const std::filesystem::path& path);

}  // namespace slipstream::tools
