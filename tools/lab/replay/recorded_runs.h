// Recorded answers of a model in the format of Spec-Bench and FastChat: JSON lines, one conversation per line. The
// prompts are in a file of their own and are matched by question_id.
//
//   prompts  {"question_id": 81, "category": "writing", "turns": ["...", "..."]}
//   trace    {"question_id": 81, "category": "writing", "choices": [{"turns": ["...", "..."], "new_tokens": [990, 807],
//             "accept_lengths": [1, 3, ...]}]}
//
// new_tokens and accept_lengths may be missing. Further choices and other fields are ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream::tools {

struct RecordedTexts {
    std::string prompt;
    std::string answer;
    std::optional<std::int64_t> new_tokens;  // number of tokens of the answer, an end token included
};

struct RecordedRun {
    std::int64_t question_id = 0;
    std::string category;              // "" if the trace has none
    std::vector<RecordedTexts> turns;  // not empty
    /// Tokens that each pass of the recorded run committed, of all turns together; empty if the trace has none.
    std::vector<std::int64_t> accept_lengths;
};

/// Returns the conversations of the recorded runs in `trace`, in the order of its lines, with their prompts from
/// `prompts`. `trace` and `prompts` are the contents of two files; `trace_name` and `prompts_name` are the files'
/// names, for messages. Throws FormatError if a line is malformed or its prompts are missing, RequestError if there is
/// no conversation at all.
[[nodiscard]] std::vector<RecordedRun> parse_recorded_runs(std::string_view trace, std::string_view trace_name,
                                                           std::string_view prompts, std::string_view prompts_name);

}  // namespace slipstream::tools
