// Byte-level vocabularies in files of other forms than tokenizer.json: vocab.json with merges.txt, the arrays of a GGUF
// file, and tiktoken's ranks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/tokenizer/pipeline_tokenizer.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

// The older form of a byte-level vocabulary: vocab.json and merges.txt. The text's way to it is fixed by the class of
// the tokenizer that tokenizer_config.json (or config.json) names.

struct VocabMergesFiles {
    std::string_view vocab_json, merges_txt;  // contents
    std::string vocab_name, merges_name;      // for messages
};

/// Throws FormatError; Unsupported naming the class where it is not GPT-2's, CodeGen's or Qwen 2's.
[[nodiscard]] std::unique_ptr<Tokenizer> parse_vocab_merges(const VocabMergesFiles& files,
                                                            const TokenizerSettings& settings, const TextEnds& ends);

// The byte-level vocabulary of a GGUF file: tokenizer.ggml.model "gpt2", with merges and the name of a pre-tokenizer.

/// Throws FormatError; Unsupported naming a pre-tokenizer that is not known.
[[nodiscard]] std::unique_ptr<Tokenizer> byte_bpe_from_gguf(const PlainVocabulary& vocabulary);

// Tiktoken's rank files: a line a token, its bytes in base64 and its rank, which is its id. Pairs merge where their
// bytes together are a token, by its rank; a word that is a token itself is not merged (openai/tiktoken, src/lib.rs).
//
// Neither the pattern that cuts words nor the special tokens stand in the file. They are known for the vocabularies
// that are published so, which are told by their number of ranks: Llama 3, cl100k_base, o200k_base.

/// Whether a file looks like one: Llama 3's original directories call theirs tokenizer.model.
[[nodiscard]] bool is_tiktoken(std::string_view file);

/// What the file does not say.
struct TiktokenEncoding {
    std::string pattern;  // as Rust's fancy-regex reads it
    std::vector<AddedToken> special_tokens;
    std::optional<std::string> bos_token, eos_token;  // each one of them
    bool adds_bos = false;
};
/// For the published vocabulary with so many ranks. Throws Unsupported naming the number where there is none.
[[nodiscard]] TiktokenEncoding published_tiktoken_encoding(std::size_t n_ranks, const std::string& name);

/// Number of ranks in the file. Throws FormatError.
[[nodiscard]] std::size_t count_tiktoken_ranks(std::string_view file, const std::string& name);

/// The tokenizer of a file's bytes. Special tokens that `settings` names replace those of the encoding. Throws
/// FormatError, Unsupported; `name` is the file's.
[[nodiscard]] std::unique_ptr<Tokenizer> parse_tiktoken(std::string_view file, const std::string& name,
                                                        const TiktokenEncoding& encoding,
                                                        const TokenizerSettings& settings, const TextEnds& ends);

}  // namespace slipstream
