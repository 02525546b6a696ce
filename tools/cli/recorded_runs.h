// Recorded answers of a model, as Spec-Bench and FastChat write them: JSON lines, one conversation each. Prompts lie in
// a file of their own and are matched by question_id.
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
    std::optional<std::int64_t> new_tokens;  // that the answer took, an end token included
};

struct RecordedRun {
    std::int64_t question_id = 0;
    std::string category;              // "" where the trace names none
    std::vector<RecordedTexts> turns;  // not empty
    /// Tokens that each pass of the recorded run committed, all turns together; empty where it does not say.
    std::vector<std::int64_t> accept_lengths;
};

/// The conversations of `trace`, in its order. Names are for messages. Throws FormatError where a line is no such
/// object or has no prompts, RequestError where there is no conversation at all.
[[nodiscard]] std::vector<RecordedRun> parse_recorded_runs(std::string_view trace, std::string_view trace_name,
                                                           std::string_view prompts, std::string_view prompts_name);

}  // namespace slipstream::tools
