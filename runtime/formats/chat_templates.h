// Collects the chat templates that come with a model. In a Hugging Face directory: tokenizer_config.json (one text, or
// a list of named ones), chat_template.jinja and additional_chat_templates/NAME.jinja beside it, chat_template.json of
// processors. In GGUF: tokenizer.chat_template, and tokenizer.chat_template.NAME for the names in
// tokenizer.chat_templates. The templates are not parsed here.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/formats/model_files.h"

namespace slipstream {

class GgufFile;

/// Returns all templates of a Hugging Face directory. `tokenizer_config` is its tokenizer_config.json, or an empty
/// object. A .jinja file of the directory replaces the template of the same name in `tokenizer_config`, as in
/// transformers since 4.43. Throws IoError, FormatError.
[[nodiscard]] std::vector<NamedChatTemplate> hf_chat_templates(const std::filesystem::path& directory,
                                                               const nlohmann::json& tokenizer_config);

/// Returns all templates of a GGUF file. Throws FormatError if a key has the wrong type, or a listed template is
/// missing.
[[nodiscard]] std::vector<NamedChatTemplate> gguf_chat_templates(const GgufFile& file);

}  // namespace slipstream
