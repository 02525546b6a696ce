// Tensors of a model's files that are not part of the text model: of vision, audio, drafts.
#pragma once

#include <string>

#include "runtime/formats/model_files.h"

namespace slipstream {

/// Returns how many tensors of each part are not used, in file order: "355 tensors of model.vision_tower, 1 of
/// model.embed_vision"; empty if all are used. A part is the name up to its second dot, or its first if the name does
/// not begin with "model.". Throws as ModelFiles::weights() does.
[[nodiscard]] std::string unused_tensors(const ModelFiles& files);

}  // namespace slipstream
