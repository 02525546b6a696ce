// Text out of a file, made fit for a one-line message or a terminal: names in broken files may hold anything.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace slipstream {

/// `text` with control characters and bytes that are not UTF-8 written as \xNN, cut after `max_bytes` bytes of input
/// ("...").
[[nodiscard]] std::string printable(std::string_view text, std::size_t max_bytes = 96);

}  // namespace slipstream
