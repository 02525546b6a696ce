// Finds tensors of a file that the text model does not use: those of vision, audio, and drafting parts.
#pragma once

#include <string>

#include "runtime/formats/model_files.h"

namespace slipstream {

/// Returns the parts of `files` that no computation reads, as "vision_tower (324 tensors), mm (12 tensors)"; empty if
/// everything is read. The part of a tensor is its name up to the first ".", without a prefix "model."; of a layer's
/// tensor, it includes the number: "layers.5". An MTP head counts as read if open_head() serves it.
/// Factors of RoPE, which belong to the configuration, and an LM head
/// beside tied embeddings are not listed. Throws as WeightSource::weights() does.
[[nodiscard]] std::string describe_ignored_tensors(const ModelFiles& files);

}  // namespace slipstream
