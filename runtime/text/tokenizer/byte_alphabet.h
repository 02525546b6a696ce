// The alphabet of byte-level vocabularies (GPT-2, encoder.py): each byte is written as a printable character, the 188
// that are printable as themselves, the others as U+0100 to U+0143 in ascending order. So " the" is spelt "Ġthe".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace slipstream {

/// The character of `byte`, one or two bytes of UTF-8.
[[nodiscard]] std::string_view byte_to_alphabet(unsigned char byte);

/// Appends the spelling of `bytes` to `out`.
void append_in_alphabet(std::string_view bytes, std::string& out);

/// The bytes that `spelling` stands for, appended to `out`; false, and nothing appended, where it holds anything else.
[[nodiscard]] bool append_from_alphabet(std::string_view spelling, std::string& out);

}  // namespace slipstream
