// How tokens are drawn: what was asked for, else what the model's generation_config says, else the built-in values.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "runtime/loop/sampling/sampler.h"
#include "runtime/model/model_config.h"
#include "tools/base/range.h"
#include "tools/engine/engine_callbacks.h"
#include "tools/engine/engine_options.h"

namespace slipstream::tools {

// Values that the sampling options may have, here the temperature; values of the user, of a request and of the model's
// file are checked against these ranges.
inline constexpr Range<double> kTemperatureRange{0.0, 1000.0};
inline constexpr Range<std::int64_t> kTopKRange{0, std::numeric_limits<std::int64_t>::max()};
inline constexpr Range<double> kShareRange{0.0, 1.0};  // top-p, min-p
inline constexpr Range<double> kRepeatPenaltyRange{0.01, 100.0};
inline constexpr Range<double> kAddedPenaltyRange{-100.0, 100.0};  // presence, frequency
inline constexpr float kMostBias = 1000.0F;                        // absolute value of a token's bias, besides -inf

/// Returns the number of last tokens that penalties look at as --repeat-last-n takes it: "-1" for all.
[[nodiscard]] std::string window_text(std::int64_t repeat_window);
/// Returns a seed of 32 random bits, which is short enough to be typed again.
[[nodiscard]] std::uint64_t random_seed();

/// Returns the sampling options: each value is the chosen one, else the one of the model's generation_config, else the
/// built-in one; a seed is drawn if none is chosen. Reports each choice. A model's "top_k"
/// of -1 means off, as 0 does: files written for vLLM spell it so. Throws FormatError if a value of the model's is out
/// of range and nothing overrides it; the message names generation_config.json and the option that does.
[[nodiscard]] SamplerOptions resolve_sampling(const SamplingSettings& chosen, const GenerationDefaults& model,
                                              const EngineCallbacks& callbacks);

}  // namespace slipstream::tools
