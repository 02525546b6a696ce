// Patterns of published tokenizers, rewritten for PCRE2 with equal meaning. They are written for Oniguruma
// (tokenizer.json, by the tokenizers package) or for Rust's regex engines (tiktoken). The three agree on most of what
// such patterns use and differ in the rest: \s (PCRE2 adds U+180E), \w, \v, '^', '$', possessive intervals ("{1,3}+"
// repeats in Oniguruma), classes inside of classes, and script names.
//
// The reader knows a subset and refuses the rest by name: a pattern that is nearly understood would give plausible and
// wrong ids. Source of the meanings: doc/RE of kkos/oniguruma, docs.rs/regex "Syntax", pcre2pattern(3).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace slipstream {

enum class PatternDialect : std::uint8_t { Oniguruma, Rust };

/// The pattern for PCRE2 with UTF and UCP. `name` stands in messages. Throws Unsupported naming what is not understood.
[[nodiscard]] std::string to_pcre2(std::string_view pattern, PatternDialect dialect, std::string_view name);

/// A pattern that matches `text` itself.
[[nodiscard]] std::string literal_pcre2(std::string_view text);

}  // namespace slipstream
