// Reads the JSON of a request with bounds that keep its tree small, however the text is made.
#pragma once

#include <cstddef>
#include <string_view>

#include "runtime/text/chat/chat_template.h"

namespace slipstream {

inline constexpr std::size_t kMaxRequestBytes = std::size_t{16} << 20U;
// Limits the values of a request, counted before the tree is built: a value takes up to 100 bytes more than its text,
// so the tree takes at most 100 MB more.
inline constexpr std::size_t kMaxRequestValues = 1'000'000;
inline constexpr std::size_t kMaxRequestDepth = 64;

/// Returns an upper bound of the number of values in the JSON `text`. Throws RequestError, which calls the text `what`,
/// if it is nested deeper than kMaxRequestDepth or may have more than `most` values.
[[nodiscard]] std::size_t check_json_amount(std::string_view text, std::string_view what,
                                            std::size_t most = kMaxRequestValues);

/// Returns the value that the JSON `text` describes. Throws RequestError, which calls the text `what`, if it is not
/// JSON, is nested deeper than kMaxRequestDepth, or has more than kMaxRequestBytes or kMaxRequestValues.
[[nodiscard]] TemplateValue parse_request_json(std::string_view text, std::string_view what);

}  // namespace slipstream
