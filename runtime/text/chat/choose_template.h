// Which chat template a conversation is rendered with: the model's own, of several the one for its use, or, for a model
// that brings none, that of a known family.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/chat/chat_template.h"

namespace slipstream {

enum class ToolUse : std::uint8_t { NoTools, Tools };

/// A chat template as it came with the model; "default" is the plain one, "tool_use" and the like are for their use.
struct NamedChatTemplate {
    std::string name;
    std::string source;
};
/// The name of the template that is meant where none is named.
inline constexpr std::string_view kDefaultChatTemplate = "default";

/// The source of the template of that name, or null.
[[nodiscard]] const std::string* find_chat_template(const std::vector<NamedChatTemplate>& templates,
                                                    std::string_view name);

/// The model's template; nothing where it has none. `wanted` names one of several; without it the template "tool_use"
/// is for conversations with tools, "default" for all others. Throws RequestError where the model has templates, but
/// not that one (it lists those it has), TemplateError where the chosen one is broken.
[[nodiscard]] std::optional<ChatTemplate> chat_template_of(const std::vector<NamedChatTemplate>& templates,
                                                           ToolUse tools, std::string_view wanted = {});

/// A way of writing conversations that many models share. Tell the user which was taken: it is a guess.
struct TemplateFamily {
    std::string_view name;      // "chatml"
    std::string_view source;    // Jinja
    std::string_view turn_end;  // what ends an answer besides the end token; empty where nothing does
};

/// By its name, or null; "plain" (### Instruction, ### Response) serves where no other does.
[[nodiscard]] const TemplateFamily* find_template_family(std::string_view name);
[[nodiscard]] std::string template_family_names();  // "chatml, llama-2, ..."

/// The family whose special tokens the vocabulary has (`has_token` says whether a text is one special token); else the
/// one that the model's name speaks of; null where nothing tells.
[[nodiscard]] const TemplateFamily* guess_template_family(const std::function<bool(std::string_view)>& has_token,
                                                          std::string_view model_name);

}  // namespace slipstream
