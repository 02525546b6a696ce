// The figures of a run as JSON, with the keys that scripts rely on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "runtime/loop/text_generation.h"
#include "runtime/ranks/model_runner.h"
#include "tools/base/json_object.h"
#include "tools/engine/source_totals.h"

namespace slipstream::tools {

class LoadedModel;
class OpenedModel;

/// What has streamed up to a moment.
struct StreamSnapshot {
    std::uint64_t weights_bytes = 0;  // read by passes
    std::uint64_t kv_bytes = 0;       // the same
    std::uint64_t logits_bytes = 0;   // from a card to the host
    std::vector<LinkFigures> links;   // [devices], from host to device; empty where nothing streams
    double wait_seconds = 0.0;        // that passes stood still for a block
    double seconds = 0.0;             // on a steady clock
    [[nodiscard]] StreamSnapshot operator-(const StreamSnapshot& earlier) const;
};
[[nodiscard]] StreamSnapshot stream_snapshot(const LoadedModel& model, const ModelRunner& runner);

struct RunFigures {
    std::uint64_t seed = 0;
    double first_token_seconds = 0.0;  // from the start of the program; 0 where none came
    SourceTotals sources{};
    StreamSnapshot streamed{};                     // of decoding
    StreamSnapshot streamed_before{};              // of the prompt
    std::optional<std::int64_t> checked_tokens{};  // of the self-check, where one was made: all were right
};

/// How it was placed, bytes as `plan` names them.
[[nodiscard]] JsonObject plan_json(const LoadedModel& model);

/// One object, as --stats writes it; times in seconds, sizes in bytes.
[[nodiscard]] JsonObject statistics_json(const LoadedModel& model, const TextGenerationResult& result,
                                         const RunFigures& figures);
/// The same of a text for which nothing was loaded: no devices, an empty plan.
[[nodiscard]] JsonObject statistics_json(const OpenedModel& model, const TextGenerationResult& result,
                                         const RunFigures& figures);

/// What a teacher-forced run came to.
struct TeacherForcedFigures {
    std::int64_t tokens = 0;  // predicted, or fed
    double seconds = 0.0;
    std::optional<double> nats;           // summed over the tokens; only of a text
    std::optional<std::int64_t> windows;  // the same
};

/// One object of the same form, with the keys that apply: model, devices, plan, tokens, seconds, tokens_per_second,
/// peak; of a text perplexity, nats_per_token and windows too.
[[nodiscard]] JsonObject statistics_json(const LoadedModel& model, const TeacherForcedFigures& figures);

/// "85.2 tokens/s, 1.67 a pass"; "one pass" where nothing was decoded behind the first tokens, so that there is no
/// rate.
[[nodiscard]] std::string speed_text(const TextGenerationResult& result);
/// The line at the end: "12 prompt tokens in 0.01 s, 100 tokens in 0.52 s (190.4 tokens/s, 2.31 a pass); seed 7; ...".
/// Tokens a pass stand there where something was guessed, the seed where tokens were drawn.
[[nodiscard]] std::string summary_line(const TextGenerationResult& result, const SamplerOptions& sampling);

}  // namespace slipstream::tools
