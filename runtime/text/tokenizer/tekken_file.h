// Reads tekken.json, the vocabulary of Mistral's models from Mistral Nemo on (mistralai/mistral-common,
// tokens/tokenizers/tekken.py). It is byte-level BPE by rank (ranked_bpe.h) in one JSON object:
//
//   config          pattern (cuts text into words, in the syntax of tiktoken), default_vocab_size V,
//                   default_num_special_tokens S, version ("v3", "v13", ...)
//   vocab           [{rank, token_bytes (base64), token_str}], in the order of the ranks; the first 256 are the bytes
//   special_tokens  [{rank, token_str, is_control}]; absent in files up to version v7
//
// Special tokens have the ids 0 to S - 1, which are their ranks. Of `vocab`, the first V - S entries are tokens; the
// id is S + rank. Published files have S = 1000, V = 131072 and 150000 entries. Parts for images and audio are ignored.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/text/tokenizer/pipeline_tokenizer.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

/// Returns the tokenizer of `text`, the contents of a tekken.json called `name`. All special tokens are control
/// tokens, whatever is_control says: mistral-common neither makes them of text nor prints them. A special token that
/// the file does not list is called <SPECIAL_n>, with its id. A file without a list gets the fixed list of version v7,
/// older ones without its tokens of system texts. BOS is "<s>" and is added, EOS is "</s>", unless `settings` or `ends`
/// say otherwise; settings.added_tokens is ignored. Throws FormatError if the file is broken, Unsupported if the
/// pattern uses unknown syntax.
[[nodiscard]] std::unique_ptr<Tokenizer> parse_tekken(std::string_view text, const std::string& name,
                                                      const TokenizerSettings& settings, const TextEnds& ends);

}  // namespace slipstream
