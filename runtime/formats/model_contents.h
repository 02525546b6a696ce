// What opening a format produces for ModelFiles: the mappings, and everything that was read from their headers.
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

/// The parts of a ModelFiles object.
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
    const TensorNames* names = nullptr;
    BindingRules rules;
};

/// Returns the tensor of `shape` (row-major) in `data`, which must outlive it. The tensor has no view if `dtype` is
/// nullopt (the type is not supported) or the shape does not have 1 to 4 dimensions.
[[nodiscard]] FileTensor make_file_tensor(std::string name, std::string_view type_name, std::optional<DType> dtype,
                                          std::vector<std::int64_t> shape, std::span<const std::byte> data);

/// Opens a GGUF file; if it is the first part of a split model, opens all parts. Throws as ModelFiles::open() does.
[[nodiscard]] ModelContents open_gguf(const std::filesystem::path& path);

/// Opens a Hugging Face directory, which must have a config.json. Throws as ModelFiles::open() does.
[[nodiscard]] ModelContents open_hf_directory(const std::filesystem::path& directory);

}  // namespace slipstream
