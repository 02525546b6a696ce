// Reads a tokenizer.json (huggingface/tokenizers) whole: text passes what its normalizer and pre_tokenizer say, ids are
// those of the package. Models: BPE, byte-level or over characters, and Unigram. Whatever is not understood is refused
// by name, never guessed.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/text/tokenizer/pipeline_tokenizer.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "runtime/text/tokenizer/vocabulary.h"

namespace slipstream {

/// {"token": id, ...}: a vocab.json. Throws FormatError; `name` is the file's.
[[nodiscard]] IndexedVocabulary read_vocabulary_object(std::string_view text, std::string_view name);

/// `text` is the file's, `name` stands in messages. Throws FormatError, Unsupported.
[[nodiscard]] std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& name,
                                                              const TokenizerSettings& settings, const TextEnds& ends);

}  // namespace slipstream
