// The chat templates that come with a model, collected from where they are kept: tokenizer_config.json (one text, or a
// list of named ones), chat_template.jinja and additional_chat_templates/NAME.jinja beside it, chat_template.json of
// processors; in GGUF tokenizer.chat_template and tokenizer.chat_template.NAME. Their text is not looked at here.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/formats/model_files.h"

namespace slipstream {

class GgufFile;

/// All templates of a Hugging Face directory; `tokenizer_config` is its tokenizer_config.json (or an empty object). A
/// file of its own has priority over the field, as in transformers since 4.43. Throws IoError, FormatError.
[[nodiscard]] std::vector<NamedChatTemplate> hf_chat_templates(const std::filesystem::path& directory,
                                                               const nlohmann::json& tokenizer_config);

/// All templates of a GGUF file. Throws FormatError for keys of another type.
[[nodiscard]] std::vector<NamedChatTemplate> gguf_chat_templates(const GgufFile& file);

}  // namespace slipstream
