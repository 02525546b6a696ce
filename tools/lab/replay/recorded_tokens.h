// Encodes recorded conversations as token ids and splits them into prompts and answers. The ids are those that the
// model saw only if the tokenizer forms no token across the border between a prompt and its answer. If it does, the
// border is after the last token that prompt alone and prompt with answer have in common.
//
// Formats: `vicuna` is the template of Vicuna 1.1 to 1.5 as Spec-Bench uses it. The conversation is split at its end
// tokens and each part is encoded by itself, so that each has its own leading space; BOS comes first, and an end token
// between the parts. `raw`: prompt and answer are encoded unchanged, after BOS if the tokenizer adds it, with an end
// token between turns.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "draft/replay.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tools/lab/replay/recorded_runs.h"

namespace slipstream::tools {

enum class RecordedFormat : std::uint8_t { Vicuna, Raw };
/// Returns the format that --format calls `name`; nothing if there is none.
[[nodiscard]] std::optional<RecordedFormat> find_recorded_format(std::string_view name);

/// Returns the turns of `run` as token ids. An answer ends with the end token if the run's new_tokens are more than the
/// answer's own tokens, or are unknown; otherwise the end token begins the next turn's prompt. Throws RequestError if
/// the tokenizer has no end token or lacks the BOS that the format requires, or if the first prompt has no tokens;
/// Interrupted after a signal.
[[nodiscard]] std::vector<draft::RecordedTurn> recorded_tokens(const RecordedRun& run, const Tokenizer& tokenizer,
                                                               RecordedFormat format);

}  // namespace slipstream::tools
