// Readers of the small parts of a tokenizer.json, and of tokenizer_config.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/tokenizer/pipeline_tokenizer.h"
#include "runtime/text/tokenizer/pre_tokenizer.h"
#include "runtime/text/tokenizer/text_normalizer.h"
#include "runtime/text/tokenizer/token_matchers.h"

namespace slipstream {

/// Returns the settings in `text`, the contents of a tokenizer_config.json. Throws FormatError, which names the file
/// `name`, if it is broken.
[[nodiscard]] TokenizerSettings read_tokenizer_settings(std::string_view text, const std::string& name);

// The small parts of a tokenizer.json: what happens to text before the model, and to tokens after it. Each reader takes
// the JSON value of one part. It throws Unsupported, which names what it does not know, or FormatError if the part is
// broken; `name` is the name of the file. Format: huggingface/tokenizers, the serialisation of each type.

/// Returns the steps of the "normalizer" of a tokenizer.json; null means no steps. Throws FormatError, Unsupported.
[[nodiscard]] std::vector<NormalizerStep> read_normalizer(const nlohmann::json& json, const std::string& name);

/// Returns the steps of the "pre_tokenizer" of a tokenizer.json; null means no steps. A ByteAlphabetStep among them
/// shows that the spellings of the model's tokens are in the byte alphabet. Throws FormatError, Unsupported.
[[nodiscard]] std::vector<PreTokenizerStep> read_pre_tokenizer(const nlohmann::json& json, const std::string& name);

/// How token spellings become text.
struct TokenDecoding {
    bool byte_alphabet = false;  // spellings are in the byte alphabet
    bool byte_fallback = false;  // "<0x0A>" stands for a byte
    // Replacements (from, to) that are applied in order to the spelling of each token.
    std::vector<std::pair<std::string, std::string>> replacements;
    bool strips_space = false;  // one space at the beginning of a text is removed
};
/// Returns the "decoder" of a tokenizer.json; with null, tokens print their spellings. Throws FormatError, Unsupported.
[[nodiscard]] TokenDecoding read_decoder(const nlohmann::json& json, const std::string& name);

/// Returns the "post_processor" of a tokenizer.json; null means no tokens around a text. Throws FormatError,
/// Unsupported.
[[nodiscard]] TextTemplate read_post_processor(const nlohmann::json& json, const std::string& name);

/// Returns the "added_tokens" of a tokenizer.json; null means none. Throws FormatError, Unsupported.
[[nodiscard]] std::vector<AddedToken> read_added_tokens(const nlohmann::json& json, const std::string& name);

/// Returns one added token, an element of "added_tokens" or of "added_tokens_decoder" in tokenizer_config.json. `id` is
/// its id; `name` is the name of the file, for messages. Throws FormatError if it is broken.
[[nodiscard]] AddedToken read_added_token(const nlohmann::json& json, TokenId id, const std::string& name);

/// Throws an Unsupported that says that `what`, in the part `where`, is not known.
[[noreturn]] void refuse_part(const std::string& where, std::string_view what);

}  // namespace slipstream
