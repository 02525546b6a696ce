// Characters that the installed regex library may be too old to know.
//
// Patterns ask for categories (\p{L}), and which characters have one depends on the Unicode version: PCRE2 10.42 is at
// 14, the libraries that vocabularies are trained with are at 16 and later. Text is therefore matched in a copy in
// which each newer character is replaced by an older one of the same category and the same length in bytes, so that
// offsets stay. Text without such characters, nearly all of it, is matched in place.
#pragma once

#include <string>
#include <string_view>

namespace slipstream {

/// Whether `text`, valid UTF-8, holds a character assigned after Unicode 14.
[[nodiscard]] bool has_newer_characters(std::string_view text);

/// `text` with each of them replaced; same length.
[[nodiscard]] std::string with_older_characters(std::string_view text);

}  // namespace slipstream
