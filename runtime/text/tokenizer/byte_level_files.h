// Readers of byte-level vocabularies in files other than tokenizer.json: vocab.json with merges.txt, the arrays of a
// GGUF file, and tiktoken's rank files.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/tokenizer/pipeline_tokenizer.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

// vocab.json with merges.txt, the older format of a byte-level vocabulary. These two files do not say how text is
// normalised and cut into words; the tokenizer class that tokenizer_config.json (or config.json) names determines it.

struct VocabMergesFiles {
    std::string_view vocab_json, merges_txt;  // contents of the files
    std::string vocab_name, merges_name;      // file names, for error messages
};

/// Returns the tokenizer of a vocab.json and its merges.txt. Throws FormatError if a file is broken, and Unsupported,
/// which names settings.tokenizer_class, unless that class is the tokenizer of GPT-2, CodeGen or Qwen 2.
[[nodiscard]] std::unique_ptr<Tokenizer> parse_vocab_merges(const VocabMergesFiles& files,
                                                            const TokenizerSettings& settings, const TextEnds& ends);

// The byte-level vocabulary of a GGUF file whose tokenizer.ggml.model is "gpt2": tokens, merges and the name of a
// pre-tokenizer.

/// Returns the tokenizer of the vocabulary of a GGUF file. Throws FormatError if the arrays contradict each other, and
/// Unsupported if the pre-tokenizer is unknown, which the message names.
[[nodiscard]] std::unique_ptr<Tokenizer> byte_bpe_from_gguf(const PlainVocabulary& vocabulary);

// Tiktoken's rank files: each line holds one token, as its bytes in base64 and its rank, which is also its id
// (ranked_bpe.h).
//
// The file holds neither the pattern that cuts text into words nor the special tokens. Both are known for the
// vocabularies that are published in this format, which are recognised by their number of ranks: Llama 3, cl100k_base,
// o200k_base.

/// Returns whether the first line of `file` (the contents) is base64, a space and decimal digits, as in tiktoken's rank
/// files. The name does not tell: Llama 3's original directories call their rank file tokenizer.model.
[[nodiscard]] bool is_tiktoken(std::string_view file);

/// What a tiktoken rank file does not contain: the pattern that cuts text into words, and the special tokens.
struct TiktokenEncoding {
    std::string pattern;  // pattern of the pre-tokenizer, in the syntax of Rust's fancy-regex
    std::vector<AddedToken> special_tokens;
    std::optional<std::string> bos_token, eos_token;  // contents of two of special_tokens
    bool adds_bos = false;
};
/// Returns the encoding of the published vocabulary that has `n_ranks` ranks. Throws Unsupported, which names n_ranks
/// and the file (`name`), if no published vocabulary has as many.
[[nodiscard]] TiktokenEncoding published_tiktoken_encoding(std::size_t n_ranks, const std::string& name);

/// Returns the number of ranks (lines that are not empty) in `file`, the contents of a rank file. Throws FormatError if
/// a line is not "<base64> <rank>"; `name` is the name of the file, for messages.
[[nodiscard]] std::size_t count_tiktoken_ranks(std::string_view file, const std::string& name);

/// Returns the tokenizer of `file`, the contents of a rank file called `name`. If settings.added_tokens is not empty,
/// it replaces the special tokens of `encoding`. Throws FormatError if the file is broken or holds a token twice,
/// Unsupported if the pattern uses unknown syntax.
[[nodiscard]] std::unique_ptr<Tokenizer> parse_tiktoken(std::string_view file, const std::string& name,
                                                        const TiktokenEncoding& encoding,
                                                        const TokenizerSettings& settings, const TextEnds& ends);

}  // namespace slipstream
