// Options of chat templates: --no-template, --template F, --template-arg K=V, --system TEXT. tools/engine/prompts.h
// chooses the template of a prompt by them.
#pragma once

#include <vector>

namespace slipstream::tools {

struct OptionSpec;
class Settings;
struct TemplateSettings;

/// Declares --system, --no-template, --template and --template-arg.
[[nodiscard]] std::vector<OptionSpec> template_option_specs();

/// Returns the given options. If --template names a file, reads and parses it, so that its errors are found before the
/// model is opened. Throws UsageError, TemplateError, and what read_text() throws (RequestError, IoError, Interrupted).
[[nodiscard]] TemplateSettings template_settings(const Settings& settings);

}  // namespace slipstream::tools
