// Digests that tell models and vocabularies apart: keys of tables, sessions and kept splits on disk.
#pragma once

#include <cstdint>

#include "runtime/formats/model_files.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

/// Digest of the configuration's numbers, the vocabulary, and name, type, shape and a sample of the bytes of every
/// tensor (64 at its start, middle and end), so that two fine-tunes of one model differ. Touches three pages a tensor:
/// milliseconds, whatever the model's size, once they are in memory. Neither paths nor names of files count. Throws
/// IoError where a tokenizer's file cannot be read.
[[nodiscard]] std::uint64_t model_fingerprint(const ModelFiles& files);

/// Digest of all pieces in the order of their ids, with their kinds: what a table of token ids made from text is for,
/// whatever model or file format the tokenizer came with.
[[nodiscard]] std::uint64_t tokenizer_fingerprint(const Tokenizer& tokenizer);

}  // namespace slipstream
