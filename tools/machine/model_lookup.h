// From what `-m` says to a path that can be opened: a path as it stands, or a name among the models on this machine.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "tools/machine/model_stores.h"

namespace slipstream::tools {

/// `model` as given. A path that exists is taken (of a directory without config.json, its one GGUF file); whatever
/// looks like a path and does not exist is an IoError. A name, "org/name[:QUANT]" or "name[:QUANT]", is looked up in
/// the stores, which are only searched then, letter case aside, and by its beginning up to a dash where nothing has it
/// whole; QUANT must occur in the file's name. RequestError where nothing or several files match: it says what was
/// searched, and how to get the model. `option` is what messages name.
[[nodiscard]] std::filesystem::path resolve_model(std::string_view model,
                                                  const std::function<ModelStores()>& find_stores,
                                                  std::string_view option = "-m");

/// The demo model's directory, relative to the program: in the source tree, or where it is installed. Empty where it is
/// not there.
[[nodiscard]] std::filesystem::path bundled_model(const std::filesystem::path& program_folder);
/// The same of its draft model.
[[nodiscard]] std::filesystem::path bundled_draft_model(const std::filesystem::path& program_folder);

}  // namespace slipstream::tools
