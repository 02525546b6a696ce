// GGUF metadata to a ModelConfig: architectures llama (Mistral's files say "llama" too), qwen2, qwen3 and phi3. Keys
// and defaults as llama.cpp writes and reads them (gguf-py/gguf/constants.py, src/llama-model.cpp); anything else is
// refused by name.
#pragma once

#include "runtime/formats/gguf_file.h"
#include "runtime/formats/tensor_index.h"

namespace slipstream {

/// The configuration, validated. `tensors` are those of all parts: the vocabulary is the embedding's rows, rope factors
/// are tensors. Throws FormatError (missing or contradictory keys) or Unsupported (architecture, experts, layers that
/// differ). Messages name the file.
[[nodiscard]] ModelConfig read_gguf_config(const GgufFile& file, const TensorIndex& tensors);

/// End tokens and general.sampling.* of the file.
[[nodiscard]] GenerationDefaults read_gguf_generation_defaults(const GgufFile& file, const GgufVocabulary& vocabulary);

}  // namespace slipstream
