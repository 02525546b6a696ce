// The options of sampling: command line, environment, configuration file. What the model says, and the built-in values,
// come after them (tools/engine/sampling_choice.h).
#pragma once

#include <string_view>
#include <vector>

namespace slipstream {
struct TokenBias;
}

namespace slipstream::tools {

struct OptionSpec;
struct SamplingSettings;
class Settings;

/// --temperature, --top-k, --top-p, --min-p, penalties, --logit-bias, --ignore-eos, --seed.
[[nodiscard]] std::vector<OptionSpec> sampling_option_specs();

/// What the settings say; nothing where they are silent. Throws UsageError: called before the model is opened.
[[nodiscard]] SamplingSettings sampling_settings(const Settings& settings);
/// "15043=1,2=-inf" (as llama.cpp spells it too: "15043+1", "2-inf"), or "none". Throws UsageError that names `where`.
[[nodiscard]] std::vector<TokenBias> parse_logit_bias(std::string_view text, std::string_view where);

}  // namespace slipstream::tools
