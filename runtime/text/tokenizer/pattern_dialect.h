// Translates the patterns of published tokenizers to PCRE2, with equal meaning. The patterns are written for Oniguruma
// (tokenizer.json, by the tokenizers package) or for Rust's regex engines (tiktoken). The three syntaxes agree on most
// of what such patterns use and differ in the rest: \s (PCRE2 adds U+180E), \w, \v, '^', '$', possessive intervals
// ("{1,3}+" repeats in Oniguruma), classes inside of classes, and script names.
//
// The translator knows a subset of the syntax and refuses the rest, which its message names: a pattern that is nearly
// understood would give plausible and wrong ids. Sources of the meanings: doc/RE of kkos/oniguruma, docs.rs/regex
// "Syntax", pcre2pattern(3).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace slipstream {

enum class PatternDialect : std::uint8_t { Oniguruma, Rust };

/// Returns `pattern` in PCRE2's syntax, for compilation with the options UTF and UCP. `name` is the name of the file,
/// for messages. Throws Unsupported, which names the construct, if the pattern contains something that is not
/// understood.
[[nodiscard]] std::string to_pcre2(std::string_view pattern, PatternDialect dialect, std::string_view name);

/// Returns a PCRE2 pattern that matches exactly `text`.
[[nodiscard]] std::string literal_pcre2(std::string_view text);

}  // namespace slipstream
