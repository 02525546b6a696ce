// The layers of a model in one line.
#pragma once

#include <string>

#include "runtime/model/model_config.h"

namespace slipstream::tools {

/// Returns what the first half of each layer is, runs of equal layers together and the period found:
/// "32: full, 32/8 heads of 128", "10 x [5: window 1024, 32/16 heads of 256; 1: full, 32/4 heads of 512, values from
/// keys]", "16 x [3: delta net, 16/48 heads of 128; 1: full, 24/4 heads of 256]". Heads are query heads / kv heads, of
/// delta nets key heads / value heads.
[[nodiscard]] std::string layer_pattern(const ModelConfig& config);

}  // namespace slipstream::tools
