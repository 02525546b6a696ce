// Options that end a text: --max-tokens and --stop.
#pragma once

#include "runtime/loop/text_generation.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

/// Returns --max-tokens and --stop. Throws UsageError if a value is malformed or a stop text is empty.
[[nodiscard]] TextGenerationOptions text_options(const Settings& settings);

}  // namespace slipstream::tools
