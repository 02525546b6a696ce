// Patterns of published tokenizers, and the names that GGUF files use for them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/tokenizer/pre_tokenizer.h"
#include "runtime/text/tokenizer/text_normalizer.h"

namespace slipstream {

// Patterns that several published tokenizers share, as their files write them (syntax of Oniguruma).

/// The pattern of GPT-2 (encoder.py), which "ByteLevel" of a tokenizer.json also stands for.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// The pattern of Llama 3: a run of digits is cut into words of at most three digits.
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// The pattern of Qwen 2: each digit is a word.
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// The pattern of OpenAI's o200k_base (GPT-4o, Llama 4): a word ends where lower case is followed by upper case; an
/// ending like 's belongs to its word.
inline constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The pre-tokenizers that GGUF files name in "tokenizer.ggml.pre": a table from names to patterns. The patterns are
// those of the tokenizer whose ids the name stands for. A name that is not in the table is refused, never approximated.

struct NamedPreTokenizer {
    // Patterns are applied in order, each to the pieces of the pattern before; a match becomes a piece of its own.
    std::span<const std::string_view> patterns;
    std::optional<UnicodeForm> form;  // normalises the text first; nullopt: no normalisation
    bool takes_whole_words = false;   // a word that is itself a token is not merged
    bool adds_bos = false;            // whether BOS is added if the file does not say
};

/// Returns the pre-tokenizer that GGUF files call `name`, or nullopt if the name is unknown. An empty name, from files
/// older than the field, means "default".
[[nodiscard]] std::optional<NamedPreTokenizer> find_pre_tokenizer(std::string_view name);

/// Returns the pre-tokenizer steps of `named`: one split per pattern, then the byte alphabet. Throws Unsupported if
/// PCRE2 refuses a pattern; `file` is the name of the file, for the message.
[[nodiscard]] std::vector<PreTokenizerStep> steps_of(const NamedPreTokenizer& named, const std::string& file);

}  // namespace slipstream
