// The pre-tokenizers that GGUF files name in "tokenizer.ggml.pre": one table from names to patterns. The patterns are
// those of the tokenizers whose ids the name stands for; a name that is not in the table is refused, never
// approximated.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/tokenizer/pre_tokenizer.h"
#include "runtime/text/tokenizer/text_normalizer.h"

namespace slipstream {

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
