// Facts about the model that is served, known before its weights are loaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "tools/engine/engine.h"

namespace slipstream::tools {

struct ServedModel {
    std::string name;
    std::int64_t created = 0;  // seconds since 1970: when its file was changed last
    std::int64_t train_context_tokens = 0;
    std::int64_t n_parameters = 0;
    std::int64_t file_bytes = 0;
    std::int64_t vocab = 0;
    std::string fingerprint;  // identifies everything besides the request that decides a text
    std::string bos, eos;     // spellings; empty: none
};

/// Returns the name for clients: "smollm2-135m-instruct" for .../smollm2-135m-instruct.gguf, "org/name" for a folder in
/// the Hugging Face cache. The bundled model has a name of its own, since its folder is called "target".
[[nodiscard]] std::string served_name(const std::filesystem::path& path, const std::filesystem::path& bundled);

/// Returns the facts about the opened model. `defaults` is a text of what else decides the texts of requests (sampling,
/// chat template); it goes into the fingerprint.
[[nodiscard]] ServedModel describe_served(const OpenedModel& opened, const Tokenizer& tokenizer,
                                          const ComputeOptions& compute, const std::string& defaults, std::string name);

}  // namespace slipstream::tools
