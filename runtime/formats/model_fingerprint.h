// Digests that distinguish models and vocabularies: they are keys of tables, sessions and placements on disk.
#pragma once

#include <cstdint>

#include "runtime/formats/model_files.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

/// Returns a digest of the numbers of the configuration, the vocabulary, and the name, type and shape of every tensor.
/// Of tensors with a supported type it includes a sample of the bytes (64 at the start, in the middle and at the end),
/// so that two fine-tunes of one model differ. Reads at most three pages per tensor: milliseconds for a model of any
/// size, once they are in memory. Paths and file names do not count. Throws IoError if a file of the tokenizer cannot
/// be read, and as WeightSource::weights() does.
[[nodiscard]] std::uint64_t model_fingerprint(const ModelFiles& files);

/// Returns a digest of all pieces in the order of their ids, with their kinds. Tables of token ids that were made from
/// text are valid for all tokenizers with the same digest, whatever the model or file format.
[[nodiscard]] std::uint64_t tokenizer_fingerprint(const Tokenizer& tokenizer);

}  // namespace slipstream
