// Options about chat templates: --no-template, --template F, --template-arg K=V, --system TEXT. Which template a prompt
// goes through for them and a model is engine/template_choice.h.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/text/chat/prompt_template.h"

namespace slipstream::tools {

class Settings;
struct OptionSpec;

/// --system, --no-template, --template, --template-arg.
[[nodiscard]] std::vector<OptionSpec> template_option_specs();

enum class TemplateChoice : std::uint8_t {
    Automatic,  // the model's own where it has one
    None,       // --no-template
    Named,      // --template
};

struct TemplateSettings {
    TemplateChoice choice = TemplateChoice::Automatic;
    std::string name{};                  // of TemplateChoice::Named, as it was given
    std::optional<ChatTemplate> file{};  // where that is a file
    TemplateArguments arguments{};
    std::string arguments_from = "--template-arg";  // who gave them, for messages
    bool arguments_demanded = false;                // what would have no effect is refused then, else passed over
    std::optional<std::string> system{};
    bool system_demanded = false;  // the same
};

/// What the settings say; a file of --template is read and parsed, so that it is found out before the model is opened.
/// Throws UsageError, IoError, TemplateError.
[[nodiscard]] TemplateSettings template_settings(const Settings& settings);

}  // namespace slipstream::tools
