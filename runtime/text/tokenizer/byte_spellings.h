// How tokenizer files write bytes: the alphabet of byte-level vocabularies, and base64.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace slipstream {

// The alphabet of byte-level vocabularies (GPT-2, encoder.py): each byte is written as one printable character. The 188
// bytes that are printable in Latin-1 stand for themselves; the other 68 are written as U+0100 to U+0143, in ascending
// order. For example, " the" is written "Ġthe".

/// Appends `bytes`, written in the byte alphabet (as UTF-8), to `out`.
void append_in_alphabet(std::string_view bytes, std::string& out);

/// Appends the bytes that `spelling`, UTF-8 text in the byte alphabet, stands for to `out` and returns true. If
/// `spelling` contains any other character, returns false and leaves `out` unchanged.
[[nodiscard]] bool append_from_alphabet(std::string_view spelling, std::string& out);

// Base64 (RFC 4648, section 4): the form in which some tokenizer files hold bytes.

/// Returns the bytes that `text` encodes, or nullopt if `text` is not base64. The padding ("=") may be missing.
[[nodiscard]] std::optional<std::string> decode_base64(std::string_view text);

}  // namespace slipstream
