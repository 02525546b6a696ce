// Parts of answers that the dialects of OpenAI share. Includes the whole JSON header.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "tools/serve/answer_shape.h"

namespace slipstream::tools {

using Json = nlohmann::ordered_json;

/// Returns the JSON text on one line; bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string json_text(const Json& json);
/// Returns the token as clients read it: its bytes in running text, or the spelling of a control token, which has no
/// bytes. `tokenizer` owns the result.
[[nodiscard]] std::string_view token_text(const Tokenizer& tokenizer, TokenId id);
/// Returns a server-sent event: the line "data: {...}" and an empty line.
[[nodiscard]] std::string data_event(const Json& json);
/// Returns a server-sent event with a name: the line "event: TYPE", the line "data: {...}" and an empty line. TYPE is
/// the member "type" of `json`, which must be there.
[[nodiscard]] std::string named_event(const Json& json);
/// Returns the bytes as a list of numbers from 0 to 255.
[[nodiscard]] Json byte_list(std::string_view bytes);
[[nodiscard]] Json usage_json(const TextOutcome& outcome);
/// Adds two objects: "timings" (tokens, milliseconds), named as in llama-server, and "slipstream" (seed, stop reason,
/// passes).
void add_figures(Json& answer, const AnswerHead& head, const TextOutcome& outcome);
/// Returns the progress of a prompt as {"total", "cache", "processed", "time_ms"}: tokens, and milliseconds.
[[nodiscard]] Json progress_json(const PromptProgressReport& progress);

}  // namespace slipstream::tools
