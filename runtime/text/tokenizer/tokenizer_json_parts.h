// The small parts of a tokenizer.json, and tokenizer_config.json beside it. Includes the whole JSON header: for .cpp
// files that read JSON anyway.
#pragma once

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "runtime/text/json_fields.h"
#include "runtime/text/tokenizer/pipeline_tokenizer.h"
#include "runtime/text/tokenizer/pre_tokenizer.h"
#include "runtime/text/tokenizer/text_normalizer.h"
#include "runtime/text/tokenizer/token_matchers.h"

namespace slipstream {

/// Reads the file's text; throws FormatError naming it.
[[nodiscard]] TokenizerSettings read_tokenizer_settings(std::string_view text, const std::string& name);

// The small parts of a tokenizer.json: what happens to text before it meets the model, and to tokens after it. Each
// reader takes the JSON value of one part and throws Unsupported naming what it does not know, FormatError for what is
// broken; `name` is the file's. Format: huggingface/tokenizers, the serialisation of each type.

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

// What the readers of a tokenizer.json's parts share. Includes the whole JSON header: for .cpp files that read JSON
// anyway.

[[noreturn]] inline void refuse_part(const std::string& where, std::string_view what) {
    throw Unsupported(fmt::format("{}: {} is not known to this version", where, printable(what)));
}

/// The field "type" of a part. Throws FormatError where there is none.
[[nodiscard]] inline std::string type_of(const nlohmann::json& part, const std::string& where) {
    if (!part.is_object()) throw FormatError(fmt::format("{}: is no object", where));
    const JsonFields fields(part, where);
    const auto type = fields.string("type");
    if (!type) fields.fail("type", "is missing");
    return *type;
}

[[nodiscard]] inline const nlohmann::json& list_field(const nlohmann::json& part, const char* key,
                                                      const std::string& where) {
    const auto found = part.find(key);
    if (found == part.end() || !found->is_array())
        throw FormatError(fmt::format("{}: field {} is no list", where, key));
    return *found;
}

}  // namespace slipstream
