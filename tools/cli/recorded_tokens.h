// Recorded conversations as token ids, cut into what was given and what was answered. Only a tokenizer that joins
// nothing across the border between a prompt and its answer gives back the ids that the model saw; where it would,
// the border is put behind the last token that both have in common.
//
// Formats: `vicuna`, the template of Vicuna 1.1 to 1.5 as Spec-Bench uses it: the conversation is split at its end
// tokens and each part is encoded by itself, so that each has its own leading space; BOS goes in front, the end token
// between. `raw`: prompt and answer as they stand, BOS in front where the tokenizer asks for it, the end token between
// turns.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "draft/replay.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tools/cli/recorded_runs.h"

namespace slipstream::tools {

enum class RecordedFormat : std::uint8_t { Vicuna, Raw };
/// As --format spells it.
[[nodiscard]] std::optional<RecordedFormat> find_recorded_format(std::string_view name);

/// An answer ends with the end token where the run's new_tokens leave room for one, or are not known; else the end
/// token opens the next turn. Throws RequestError where the tokenizer has no end token, or no BOS that the format
/// wants, Interrupted after a signal.
[[nodiscard]] std::vector<draft::RecordedTurn> recorded_tokens(const RecordedRun& run, const Tokenizer& tokenizer,
                                                               RecordedFormat format);

}  // namespace slipstream::tools
