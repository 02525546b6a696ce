// The figures of a run as JSON, with the keys that scripts rely on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "kernels/base/budget.h"
#include "runtime/text_generation.h"
#include "tools/json_object.h"

namespace slipstream::tools {

struct ServedModel;

struct RunFigures {
    std::uint64_t seed = 0;
    double first_token_seconds = 0.0;  // from the start of the program; 0 where none came
};

/// One object; times in seconds, sizes in bytes. Link figures are those of a run that streams nothing.
[[nodiscard]] JsonObject statistics_json(const ServedModel& served, const TextGenerationResult& result,
                                         const RunFigures& figures);

/// The line at the end: "12 prompt tokens in 0.01 s, 100 tokens in 0.52 s (190.4 tokens/s); seed 7; ...". The seed
/// stands there where tokens were drawn.
[[nodiscard]] std::string summary_line(const TextGenerationResult& result, const SamplerOptions& sampling);

}  // namespace slipstream::tools
