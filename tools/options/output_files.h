// Checks of the files that a command is to write, before anything is opened: none is one of the model's own, and no two
// options name the same one.
#pragma once

#include <filesystem>
#include <vector>

#include "tools/options/settings.h"

namespace slipstream::tools {

/// Checks every option of role OutputFile. UsageError where one is empty, is "-" though stdout is not for it, or names
/// the same file as another; RequestError where one names a file of the model that -m stands for, under whatever name
/// (links are followed).
void check_output_files(const Settings& settings);

/// Files that a model at `model` (a path as resolve_model() gives it) may be read from: the parts of a GGUF file; of a
/// directory all weights, configurations and tokenizer files. Only those that exist.
[[nodiscard]] std::vector<std::filesystem::path> model_file_paths(const std::filesystem::path& model);

}  // namespace slipstream::tools
