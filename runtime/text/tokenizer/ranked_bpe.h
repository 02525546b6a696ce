// Byte-level BPE without a list of merges, as tiktoken defines it: each token has bytes and a rank. Two neighbouring
// tokens merge if their bytes together are a token; the rank of that token is the rank of the merge. A word that is
// itself a token is not merged (openai/tiktoken, src/lib.rs). Shared by the readers of tiktoken's rank files and of
// tekken.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/text/tokenizer/pipeline_tokenizer.h"
#include "runtime/text/tokenizer/vocabulary.h"

namespace slipstream {

/// Limits a token, in bytes: finding the merges of a token takes time that is quadratic in its length. The longest
/// token of a published vocabulary has 128 bytes.
inline constexpr std::size_t kMaxRankedTokenBytes = 256;

/// Sets the token `id` to `bytes`, spelt in the byte alphabet. Of two tokens, the one of lower rank must have the lower
/// id. Throws FormatError if `bytes` is longer than kMaxRankedTokenBytes, or as TokenVocabulary::set() does; `name` is
/// the name of the file, for the message.
void set_ranked_token(std::int64_t id, std::string_view bytes, TokenVocabulary& tokens, const std::string& name);

/// Returns the model and the pre-tokenizer for `tokens`, which must outlive them; all other parts are empty.
/// `pattern` cuts text into words, in the syntax of Rust's fancy-regex. Throws FormatError if two tokens have equal
/// bytes, Unsupported if the pattern uses unknown syntax; `name` is the name of the file, for the message.
[[nodiscard]] PipelineParts ranked_bpe_parts(const TokenVocabulary& tokens, std::string_view pattern,
                                             const std::string& name);

}  // namespace slipstream
