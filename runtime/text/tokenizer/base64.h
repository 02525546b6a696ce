// Base64 (RFC 4648, section 4), as tokenizer files hold bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace slipstream {

/// The bytes, or nothing where `text` is not base64. Padding may be left out.
[[nodiscard]] std::optional<std::string> decode_base64(std::string_view text);

}  // namespace slipstream
