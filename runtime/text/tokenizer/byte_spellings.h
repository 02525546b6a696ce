// Bytes as tokenizer files spell them: the alphabet of byte-level vocabularies, and base64.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace slipstream {

// The alphabet of byte-level vocabularies (GPT-2, encoder.py): each byte is written as a printable character, the 188
// that are printable as themselves, the others as U+0100 to U+0143 in ascending order. So " the" is spelt "Ġthe".

/// Appends the spelling of `bytes` to `out`.
void append_in_alphabet(std::string_view bytes, std::string& out);

/// The bytes that `spelling` stands for, appended to `out`; false, and nothing appended, where it holds anything else.
[[nodiscard]] bool append_from_alphabet(std::string_view spelling, std::string& out);

// Base64 (RFC 4648, section 4), as tokenizer files hold bytes.

/// The bytes, or nothing where `text` is not base64. Padding may be left out.
[[nodiscard]] std::optional<std::string> decode_base64(std::string_view text);

}  // namespace slipstream
