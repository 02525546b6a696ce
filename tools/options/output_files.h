// Checks of the files that a command is to write, before anything is opened: none is one of the model's own, none is an
// input, and no two options name the same one.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "tools/options/settings.h"

namespace slipstream::tools {

/// Checks every option of role OutputFile. UsageError where one is empty, is "-" though stdout is not for it, or names
/// the same file as another; RequestError where one names a file of the model that -m stands for, under whatever name
/// (links are followed).
void check_output_files(const Settings& settings);

/// The same of one more file, which is to be written in the middle of a run; `where` names it in messages ("/save"). It
/// may not be one of the options' either.
void check_output_file(const Settings& settings, std::string_view where, const std::filesystem::path& path);

/// Files that a model at `model` (a path as resolve_model() gives it) may be read from: the parts of a GGUF file; of a
/// directory all weights, configurations and tokenizer files. Only those that exist.
[[nodiscard]] std::vector<std::filesystem::path> model_file_paths(const std::filesystem::path& model);

}  // namespace slipstream::tools
