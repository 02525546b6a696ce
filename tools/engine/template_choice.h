// Chooses the chat template of a prompt: the one that the options name (a file, one of several of the model, or a
// family), else the model's own, else a family that the model's vocabulary or name suggests.
#pragma once

#include <optional>

#include "runtime/text/chat/prompt_template.h"
#include "tools/engine/engine_options.h"
#include "tools/engine/placed_model.h"

namespace slipstream::tools {

/// For one completion: returns the named template or the model's own (of several: "tool_use" if --template-arg gives
/// tools, else "default"), and reports it as a note; no value if there is none: the prompt is then raw text. Throws
/// UsageError if a demanded argument or system text would then have no effect; RequestError if the name is unknown or
/// the model's own template cannot be parsed.
[[nodiscard]] std::optional<PromptTemplate> completion_template(TemplateSettings& chosen, const OpenedModel& model,
                                                                const Tokenizer& tokenizer,
                                                                const EngineCallbacks& callbacks);

/// For a chat: like completion_template(), but if the model has no template, uses the family that its vocabulary or
/// name suggests. Returns no value if nothing suggests one, or with --no-template: the conversation is then plain text
/// in turns.
[[nodiscard]] std::optional<PromptTemplate> conversation_template(TemplateSettings& chosen, const OpenedModel& model,
                                                                  const Tokenizer& tokenizer,
                                                                  const EngineCallbacks& callbacks);

}  // namespace slipstream::tools
