// Readers of the small parts of a tokenizer.json, and of tokenizer_config.json. This header includes the whole JSON
// header, so only .cpp files that read JSON should include it.
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

// Helpers that the readers of the parts of a tokenizer.json share.

[[noreturn]] inline void refuse_part(const std::string& where, std::string_view what) {
    throw Unsupported(fmt::format("{}: {} is not known to this version", where, printable(what)));
}

/// Returns the field "type" of a part. Throws FormatError if the part is not an object or has no such field; `where`
/// names the part in the message.
[[nodiscard]] inline std::string type_of(const nlohmann::json& part, const std::string& where) {
    if (!part.is_object()) throw FormatError(fmt::format("{}: is not an object", where));
    const JsonFields fields(part, where);
    const auto type = fields.string("type");
    if (!type) fields.fail("type", "is missing");
    return *type;
}

[[nodiscard]] inline const nlohmann::json& list_field(const nlohmann::json& part, const char* key,
                                                      const std::string& where) {
    const auto found = part.find(key);
    if (found == part.end() || !found->is_array())
        throw FormatError(fmt::format("{}: field {} is not a list", where, key));
    return *found;
}

}  // namespace slipstream
