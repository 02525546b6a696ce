// Which template a prompt goes through: --no-template, --template F (a file, one of several that the model brings, or a
// family), --template-arg K=V, --system TEXT, the model's own, or a family that the model's vocabulary or name tells
// of.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/command.h"
#include "tools/cli/settings.h"
#include "tools/engine/prompt_template.h"
#include "tools/engine/served_model.h"

namespace slipstream::tools {

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
    std::optional<std::string> system{};
};

/// What the settings say; a file of --template is read and parsed, so that it is found out before the model is opened.
/// Throws UsageError, IoError, TemplateError.
[[nodiscard]] TemplateSettings template_settings(const Settings& settings);

/// For one completion: the template named or the model's own (of several the one called "tool_use" where
/// --template-arg gives tools, else "default"), told on the console; nothing where there is none: raw text. Throws
/// UsageError where an option on the command line would have no effect then, RequestError where the name is nobody's or
/// the model's own template is not one.
[[nodiscard]] std::optional<PromptTemplate> completion_template(TemplateSettings& chosen, const ServedModel& served,
                                                                const Tokenizer& tokenizer, CommandContext& context);

/// For a chat: the same, and where the model has none the family that it tells of, by name. Nothing where nothing tells
/// of one, or with --no-template: the conversation is one text.
[[nodiscard]] std::optional<PromptTemplate> conversation_template(TemplateSettings& chosen, const ServedModel& served,
                                                                  const Tokenizer& tokenizer, CommandContext& context);

}  // namespace slipstream::tools
