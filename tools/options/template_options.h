// Options about chat templates: --no-template, --template F, --template-arg K=V, --system TEXT. Which template a prompt
// goes through for them and a model is tools/engine/prompts.h.
#pragma once

#include <vector>

namespace slipstream::tools {

struct OptionSpec;
class Settings;
struct TemplateSettings;

/// --system, --no-template, --template, --template-arg.
[[nodiscard]] std::vector<OptionSpec> template_option_specs();

/// What the settings say; a file of --template is read and parsed, so that it is found out before the model is opened.
/// Throws UsageError, IoError, TemplateError.
[[nodiscard]] TemplateSettings template_settings(const Settings& settings);

}  // namespace slipstream::tools
