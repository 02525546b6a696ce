// JSON out of files that may be broken or hostile: bounded depth, no key twice, one-line errors that name the file.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace slipstream {

/// Parses `text`; `name` stands in messages. Throws FormatError where it is not JSON, not an object at the top, nested
/// deeper than 32, or has a key twice in one object.
[[nodiscard]] nlohmann::json parse_json_object(std::string_view text, std::string_view name);

}  // namespace slipstream
