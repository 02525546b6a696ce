// The tensors of an MTP head (runtime/model/proposing_head.h) in the files of a model.
//
// GGUF files have them as one more layer: "blk.L.nextn.*" beside the tensors of a layer, with L the number of the
// model's layers ("nextn_predict_layers" counts it). Hugging Face directories of GLM-4.5 have them as such a layer,
// too, "model.layers.L.*"; those of Qwen as "mtp.*". One layer with attention, as the model's layers with attention
// are; experts if the model has them. The head may have an embedding and an LM head of its own; what it lacks is the
// model's. (llama.cpp: src/models/qwen35.cpp, glm4-moe.cpp; vLLM: model_executor/models/glm4_moe_mtp.py.)
#pragma once

#include <memory>

#include "runtime/formats/model_files.h"
#include "runtime/model/proposing_head.h"

namespace slipstream {

/// Returns whether the files have any tensor of a head.
[[nodiscard]] bool has_head(const ModelFiles& files);

/// Opens the head in `files`, which must outlive it; null if there is none. All shapes and types are checked here.
/// Throws FormatError that names the tensor that is missing or has a wrong shape, and Unsupported for a head of several
/// layers, or in a type that is not served.
[[nodiscard]] std::unique_ptr<HeadSource> open_head(const ModelFiles& files);

}  // namespace slipstream
