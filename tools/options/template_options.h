// Options about chat templates: --no-template, --template F, --template-arg K=V, --system TEXT. Which template a prompt
// goes through for them and a model is engine/template_choice.h.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/engine/engine_options.h"

namespace slipstream::tools {

class Settings;
struct OptionSpec;

/// --system, --no-template, --template, --template-arg.
[[nodiscard]] std::vector<OptionSpec> template_option_specs();

/// What the settings say; a file of --template is read and parsed, so that it is found out before the model is opened.
/// Throws UsageError, IoError, TemplateError.
[[nodiscard]] TemplateSettings template_settings(const Settings& settings);

}  // namespace slipstream::tools
