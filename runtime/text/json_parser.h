// The parser of nlohmann::json. It is a large template, so only json_parser.cpp instantiates it for values of that type
// (tools/engine/kept_rates.cpp parses nlohmann::ordered_json).
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace slipstream {

/// Receives the events of parse_json_events().
using JsonHandler = nlohmann::json_sax<nlohmann::json>;

/// Parses `text` and calls `handler` for each key, value, and begin and end of a container. Returns false if a function
/// of the handler returned false; parsing ends there.
bool parse_json_events(std::string_view text, JsonHandler& handler);

/// Returns the value of `text` as the JSON library reads it: at any depth, and of duplicate keys the last one counts.
/// Returns a discarded value if `text` is not JSON. For files that may be hostile, use parse_json_object()
/// (json_builder.h).
[[nodiscard]] nlohmann::json parse_json_value(std::string_view text);

}  // namespace slipstream
