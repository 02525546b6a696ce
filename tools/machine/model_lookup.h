// Resolves a value of -m to a path that can be opened: an existing path, or the name of a model on this machine.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "tools/machine/model_stores.h"

namespace slipstream::tools {

/// Returns the path of `model`. An existing path is returned as it is; for a directory without config.json, the only
/// GGUF model in it. Otherwise `model` is a name, "org/name[:QUANT]" or "name[:QUANT]", which is searched in
/// find_stores() (called only then), without regard to case. If no model has this name, names that begin with it up to
/// a dash match. QUANT must occur in the name of the file; in Ollama's store it is the tag, by default "latest".
/// `option` names the option in errors. Throws IoError if `model` looks like a path and does not exist, or cannot be
/// accessed; RequestError if no model or several match: it lists the places that were searched, similar names, and how
/// to get the model, or the matches.
[[nodiscard]] std::filesystem::path resolve_model(std::string_view model,
                                                  const std::function<ModelStores()>& find_stores,
                                                  std::string_view option = "-m");

/// Returns the directory of the bundled model, relative to the program: in the source tree, or where it is installed.
/// Returns an empty path if it is not there.
[[nodiscard]] std::filesystem::path bundled_model(const std::filesystem::path& program_folder);
/// Returns the directory of the bundled draft model in the same way.
[[nodiscard]] std::filesystem::path bundled_draft_model(const std::filesystem::path& program_folder);

}  // namespace slipstream::tools
