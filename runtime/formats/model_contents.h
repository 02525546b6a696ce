// What the opener of a format hands to ModelFiles: the mappings and everything that was read out of their headers.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "offload/mapped_file.h"
#include "runtime/formats/model_files.h"
#include "runtime/formats/weight_binding.h"

namespace slipstream {

struct ModelContents {
    std::string format;
    std::string label;  // the path that was opened, for messages
    std::vector<MappedFile> files;
    ModelConfig config;
    GenerationDefaults generation_defaults;
    TokenizerSource tokenizer_source;
    std::optional<std::string> chat_template;
    std::vector<FileTensor> tensors;  // views into `files`
    std::vector<std::pair<std::string, std::string>> metadata;
    const WeightNames* names = nullptr;
    BindingRules rules;
};

/// A tensor of `shape` (row-major) at `data`; no view where the type is not served or the rank is not 1 to 4.
[[nodiscard]] FileTensor make_file_tensor(std::string name, std::string_view type_name, std::optional<DType> dtype,
                                          std::vector<std::int64_t> shape, std::span<const std::byte> data);

/// Opens a GGUF file, with all its parts where it is the first of several.
[[nodiscard]] ModelContents open_gguf(const std::filesystem::path& path);

/// Opens a Hugging Face directory; `directory` holds a config.json.
[[nodiscard]] ModelContents open_hf_directory(const std::filesystem::path& directory);

}  // namespace slipstream
