// Reads all of a tokenizer.json (huggingface/tokenizers): text is processed as its normalizer and pre_tokenizer say,
// and ids are those of the tokenizers package. Supported models: BPE, byte-level or over characters, and Unigram.
// Anything that is not understood is refused, with its name in the message, and never guessed.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/text/tokenizer/pipeline_tokenizer.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "runtime/text/tokenizer/vocabulary.h"

namespace slipstream {

/// Returns the vocabulary in `text`, the contents of a vocab.json: {"token": id, ...}. Throws FormatError if the file
/// is broken; `name` is the name of the file, for the message.
[[nodiscard]] IndexedVocabulary read_vocabulary_object(std::string_view text, std::string_view name);

/// Returns the tokenizer that `text`, the contents of a tokenizer.json, describes. `name` is the name of the file, for
/// messages. Throws FormatError if the file is broken, Unsupported if it has something unknown.
[[nodiscard]] std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& name,
                                                              const TokenizerSettings& settings, const TextEnds& ends);

}  // namespace slipstream
