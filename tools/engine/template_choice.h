// Which template a prompt goes through: the one that the options name (a file, one of several that the model brings, or
// a family), the model's own, or a family that the model's vocabulary or name tells of.
#pragma once

#include <optional>

#include "tools/engine/engine_model.h"
#include "tools/engine/prompt_template.h"
#include "tools/options/command.h"
#include "tools/options/template_options.h"

namespace slipstream::tools {

/// For one completion: the template named or the model's own (of several the one called "tool_use" where
/// --template-arg gives tools, else "default"), told on the console; nothing where there is none: raw text. Throws
/// UsageError where an option on the command line would have no effect then, RequestError where the name is nobody's or
/// the model's own template is not one.
[[nodiscard]] std::optional<PromptTemplate> completion_template(TemplateSettings& chosen, const EngineModel& engine,
                                                                const Tokenizer& tokenizer, CommandContext& context);

/// For a chat: the same, and where the model has none the family that it tells of, by name. Nothing where nothing tells
/// of one, or with --no-template: the conversation is one text.
[[nodiscard]] std::optional<PromptTemplate> conversation_template(TemplateSettings& chosen, const EngineModel& engine,
                                                                  const Tokenizer& tokenizer, CommandContext& context);

}  // namespace slipstream::tools
