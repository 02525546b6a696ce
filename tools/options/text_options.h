// Where a text ends: --max-tokens, --stop.
#pragma once

#include "runtime/loop/text_generation.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

/// Throws UsageError where a value is malformed.
[[nodiscard]] TextGenerationOptions text_options(const Settings& settings);

}  // namespace slipstream::tools
