// Patterns of published tokenizers, and the names that GGUF files call them by.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/tokenizer/pre_tokenizer.h"
#include "runtime/text/tokenizer/text_normalizer.h"

namespace slipstream {

// Patterns that several published tokenizers share, in the spelling of their files (Oniguruma).

/// GPT-2 (encoder.py), and the one that "ByteLevel" of a tokenizer.json stands for.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Llama 3: runs of at most three digits.
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Qwen 2: single digits.
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// OpenAI's o200k_base (GPT-4o, Llama 4): words are cut where lower case ends, endings like 's stay with theirs.
inline constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The pre-tokenizers that GGUF files name in "tokenizer.ggml.pre": one table from names to patterns. The patterns are
// those of the tokenizers whose ids the name stands for; a name that is not in the table is refused, never
// approximated.

struct NamedPreTokenizer {
    std::span<const std::string_view> patterns;  // each cuts the pieces of the one before, matches apart from the rest
    std::optional<UnicodeForm> form;             // of the text before
    bool takes_whole_words = false;              // a word that is a token is not merged
    bool adds_bos = false;                       // where the file does not say
};

/// Nothing where the name is unknown. The empty name is that of files older than the field: "default".
[[nodiscard]] std::optional<NamedPreTokenizer> find_pre_tokenizer(std::string_view name);

/// Throws Unsupported naming `file` where PCRE2 does not take the patterns.
[[nodiscard]] std::vector<PreTokenizerStep> steps_of(const NamedPreTokenizer& named, const std::string& file);

}  // namespace slipstream
