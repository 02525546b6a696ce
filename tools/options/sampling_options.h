// How tokens are drawn, resolved through all five levels: command line, environment, configuration file, the model's
// generation_config, built in.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/loop/sampling/sampler.h"
#include "runtime/model/model_config.h"
#include "tools/engine/engine_options.h"

namespace slipstream::tools {

class Console;
class Settings;
struct OptionSpec;

/// --temperature, --top-k, --top-p, --min-p, penalties, --logit-bias, --ignore-eos, --seed.
[[nodiscard]] std::vector<OptionSpec> sampling_option_specs();

/// How many tokens penalties remember, as --repeat-last-n takes it: -1 for all.
[[nodiscard]] std::string window_text(std::int64_t repeat_window);

/// What the settings say; nothing where they are silent. Throws UsageError: called before the model is opened.
[[nodiscard]] SamplingSettings sampling_settings(const Settings& settings);
/// Whether nobody names a seed: none is given, or -1.
[[nodiscard]] bool seed_is_random(const Settings& settings);

/// "15043=1,2=-inf" (as llama.cpp spells it too: "15043+1", "2-inf"), or "none". Throws UsageError that names `where`.
[[nodiscard]] std::vector<TokenBias> parse_logit_bias(std::string_view text, std::string_view where);

/// Fills in what the model's files say, then the built-in values; a seed is drawn where none is given (the line at the
/// end of a run prints it). -v prints where each value comes from. A model's "top_k": -1 means off, as 0 does: files
/// written for vLLM spell it so. FormatError where a value of the model's is out of range and nobody overrides it; the
/// message names generation_config.json and the option that does.
[[nodiscard]] SamplerOptions resolve_sampling(const SamplingSettings& chosen, const GenerationDefaults& model,
                                              const Settings& settings, Console& console);

}  // namespace slipstream::tools
