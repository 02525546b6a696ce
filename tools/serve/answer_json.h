// Parts of answers that the dialects of OpenAI share. Includes the whole JSON header.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "tools/serve/answer_shape.h"

namespace slipstream::tools {

using Json = nlohmann::ordered_json;

/// On one line; bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string json_text(const Json& json);
/// Returns the token as clients read it: its bytes in running text, a control token as it is spelt.
[[nodiscard]] std::string_view token_text(const Tokenizer& tokenizer, TokenId id);
/// "data: {...}" and an empty line.
[[nodiscard]] std::string data_event(const Json& json);
/// The same after a line "event: TYPE", TYPE being the member "type".
[[nodiscard]] std::string named_event(const Json& json);
/// The bytes as a list of numbers.
[[nodiscard]] Json byte_list(std::string_view bytes);
[[nodiscard]] Json usage_json(const TextOutcome& outcome);
/// Adds usage-like figures under llama-server's name "timings", and ours under "slipstream".
void add_figures(Json& answer, const AnswerHead& head, const TextOutcome& outcome);
/// {"total", "cache", "processed", "time_ms"}
[[nodiscard]] Json progress_json(const PromptProgressReport& progress);

}  // namespace slipstream::tools
