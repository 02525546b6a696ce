// The small parts of a tokenizer.json: what happens to text before it meets the model, and to tokens after it. Each
// reader takes the JSON value of one part and throws Unsupported naming what it does not know, FormatError for what is
// broken; `name` is the file's. Format: huggingface/tokenizers, the serialisation of each type.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/text/tokenizer/added_token_matcher.h"
#include "runtime/text/tokenizer/pipeline_assembly.h"
#include "runtime/text/tokenizer/pre_tokenizer.h"
#include "runtime/text/tokenizer/text_normalizer.h"

namespace slipstream {

/// "normalizer"; null is none.
[[nodiscard]] std::vector<NormalizerStep> read_normalizer(const nlohmann::json& json, const std::string& name);

/// "pre_tokenizer"; null is none. A ByteAlphabetStep among them tells that the model's tokens spell bytes.
[[nodiscard]] std::vector<PreTokenizerStep> read_pre_tokenizer(const nlohmann::json& json, const std::string& name);

/// How tokens become text again.
struct TokenDecoding {
    bool byte_alphabet = false;                                     // spellings are in the byte alphabet
    bool byte_fallback = false;                                     // "<0x0A>" is a byte
    std::vector<std::pair<std::string, std::string>> replacements;  // in each token, in order
    bool strips_space = false;                                      // one space at the beginning of a text
};
/// "decoder"; null leaves spellings as they are.
[[nodiscard]] TokenDecoding read_decoder(const nlohmann::json& json, const std::string& name);

/// "post_processor"; null is none.
[[nodiscard]] TextTemplate read_post_processor(const nlohmann::json& json, const std::string& name);

/// "added_tokens"; null is none.
[[nodiscard]] std::vector<AddedToken> read_added_tokens(const nlohmann::json& json, const std::string& name);

/// One token of that list, or of tokenizer_config.json.
[[nodiscard]] AddedToken read_added_token(const nlohmann::json& json, TokenId id, const std::string& name);

}  // namespace slipstream
