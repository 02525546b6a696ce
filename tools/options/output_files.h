// Checks the files that a command will write before anything is opened, so that no output overwrites an input, a file
// of a model, or another output.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "tools/options/settings.h"

namespace slipstream::tools {

/// Checks all options of role OutputFile and OutputFileOrStdout. Throws UsageError if a name is empty, is "-" for an
/// option that cannot write to stdout, or names the same file as another output, an input or stdin; RequestError if it
/// names a file of the model, of the draft model or of --tokenizer, or a new file that such a model would read. Links
/// are followed.
void check_output_files(const Settings& settings);

/// Checks one more file, which is written in the middle of a run, in the same way and against the outputs of
/// `settings`. `where` names it in messages ("/save").
void check_output_file(const Settings& settings, std::string_view where, const std::filesystem::path& path);

/// Returns the existing files from which a model at `model` (a path from resolve_model()) may be read: all parts of a
/// GGUF file; for a directory, or the config.json in it, all weights, configurations and tokenizer files.
[[nodiscard]] std::vector<std::filesystem::path> model_file_paths(const std::filesystem::path& model);

}  // namespace slipstream::tools
