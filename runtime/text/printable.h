// Makes text from files safe for a one-line message or a terminal: names in broken or hostile files may contain any
// bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace slipstream {

/// Returns `text` with control characters, marks that change the direction of text, and bytes that are not UTF-8
/// written as \xNN. After `max_bytes` bytes of input, the rest is replaced by "...".
[[nodiscard]] std::string printable(std::string_view text, std::size_t max_bytes = 96);

}  // namespace slipstream
