// Reads a ModelConfig from GGUF metadata. Keys and defaults are those that llama.cpp writes and reads
// (gguf-py/gguf/constants.py, src/llama-model.cpp). An architecture that no family has (family.h) is refused by name.
#pragma once

#include "runtime/formats/gguf_file.h"
#include "runtime/formats/tensor_index.h"

namespace slipstream {

/// Returns the configuration, validated. `tensors` must be those of all parts: the size of the vocabulary is the number
/// of rows of the embedding, and rope factors are tensors. Throws FormatError (missing or contradictory keys) or
/// Unsupported (architecture, experts, layers that differ). Messages name the file.
[[nodiscard]] ModelConfig read_gguf_config(const GgufFile& file, const TensorIndex& tensors);

/// Returns the end tokens and general.sampling.* of the file.
[[nodiscard]] GenerationDefaults read_gguf_generation_defaults(const GgufFile& file, const GgufVocabulary& vocabulary);

}  // namespace slipstream
