// What the BPE vocabularies of GGUF files have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/text/tokenizer/tokenizer.h"
#include "runtime/text/tokenizer/vocabulary.h"

namespace slipstream {

/// Returns the merges of `source`. Throws FormatError if there are none, or if they do not fit the vocabulary.
[[nodiscard]] MergeTable gguf_merges(const PlainVocabulary& source, const IndexedVocabulary& vocabulary);

/// Returns `id` as a token of the vocabulary; nullopt if it is not given or negative. `what` names it in the message.
/// Throws FormatError if there is no such token.
[[nodiscard]] std::optional<TokenId> gguf_token(const std::optional<std::int64_t>& id, std::string_view what,
                                                const IndexedVocabulary& vocabulary);

}  // namespace slipstream
