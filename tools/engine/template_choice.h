// Which template a prompt goes through: the one that the options name (a file, one of several that the model brings, or
// a family), the model's own, or a family that the model's vocabulary or name tells of.
#pragma once

#include <optional>

#include "runtime/text/chat/prompt_template.h"
#include "tools/engine/engine_options.h"
#include "tools/engine/placed_model.h"

namespace slipstream::tools {

/// For one completion: the template named or the model's own (of several the one called "tool_use" where
/// --template-arg gives tools, else "default"), told as a note; nothing where there is none: raw text. Throws
/// UsageError where what is demanded would have no effect then, RequestError where the name is nobody's or
/// the model's own template is not one.
[[nodiscard]] std::optional<PromptTemplate> completion_template(TemplateSettings& chosen, const OpenedModel& model,
                                                                const Tokenizer& tokenizer,
                                                                const EngineCallbacks& callbacks);

/// For a chat: the same, and where the model has none the family that it tells of, by name. Nothing where nothing tells
/// of one, or with --no-template: the conversation is one text.
[[nodiscard]] std::optional<PromptTemplate> conversation_template(TemplateSettings& chosen, const OpenedModel& model,
                                                                  const Tokenizer& tokenizer,
                                                                  const EngineCallbacks& callbacks);

}  // namespace slipstream::tools
