// Options of sampling from command line, environment and configuration file. Values of the model's files and built-in
// values, which are used if an option is not given, are added by tools/engine/sampling_choice.h.
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

/// Declares --temperature, --top-k, --top-p, --min-p, penalties, --logit-bias, --ignore-eos and --seed.
[[nodiscard]] std::vector<OptionSpec> sampling_option_specs();

/// Returns the given options; a field of an option that is not given has no value. Throws UsageError. Needs no model,
/// so that mistakes are found before one is opened.
[[nodiscard]] SamplingSettings sampling_settings(const Settings& settings);
/// Parses "15043=1,2=-inf", in llama.cpp's spelling "15043+1" and "2-inf", or "none". Throws UsageError, which names
/// `where`.
[[nodiscard]] std::vector<TokenBias> parse_logit_bias(std::string_view text, std::string_view where);

}  // namespace slipstream::tools
