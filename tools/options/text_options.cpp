#include "tools/options/text_options.h"

#include <cstdint>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "tools/base/usage_error.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

TextGenerationOptions text_options(const Settings& settings) {
    TextGenerationOptions text;
    text.stops = settings.texts("stop");
    for (const std::string& stop : text.stops)
        if (stop.empty())
            throw UsageError(fmt::format("{}: an empty text occurs at once; give one to stop before, or leave it out",
                                         settings.find("stop")->where));
    text.max_tokens = settings.integer("max-tokens", {-1, std::numeric_limits<std::int64_t>::max()}).value_or(-1);
    return text;
}

}  // namespace slipstream::tools
