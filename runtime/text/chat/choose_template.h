// Chooses the chat template for a conversation: the model's own, the one for the intended use if the model has several,
// or, for a model without a template, that of a known family.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/chat/chat_template.h"

namespace slipstream {

enum class ToolUse : std::uint8_t { NoTools, Tools };

/// A chat template that came with the model. The template "default" is for general use; others ("tool_use", ...) are
/// for the use that their name says.
struct NamedChatTemplate {
    std::string name;
    std::string source;
};
/// The name of the template for general use.
inline constexpr std::string_view kDefaultChatTemplate = "default";

/// Returns the source of the template called `name`, or null. Valid as long as `templates`.
[[nodiscard]] const std::string* find_chat_template(const std::vector<NamedChatTemplate>& templates,
                                                    std::string_view name);

/// Returns the model's chat template, or nullopt if the model has none. `wanted` is the name of one of several. If it
/// is empty, "tool_use" is taken for conversations with tools and "default" for all others; if the model has only one
/// template, that one is taken whatever its name. Throws RequestError, which lists the templates, if there is none of
/// the wanted name, and TemplateError if the chosen template is broken.
[[nodiscard]] std::optional<ChatTemplate> chat_template_of(const std::vector<NamedChatTemplate>& templates,
                                                           ToolUse tools, std::string_view wanted = {});

/// A format of conversations that many models share. If one was guessed, the user must be told which.
struct TemplateFamily {
    std::string_view name;      // "chatml", for example
    std::string_view source;    // Jinja
    std::string_view turn_end;  // text that ends an answer, besides the end token; empty: none
};

/// Returns the family called `name`, or null. The family "plain" (### Instruction, ### Response) is for models that no
/// other family fits.
[[nodiscard]] const TemplateFamily* find_template_family(std::string_view name);
/// Returns the names of all families, separated by commas: "chatml, llama-2, ...".
[[nodiscard]] std::string template_family_names();

/// Returns the family whose special tokens are all in the vocabulary (`has_token`(text) must return whether the text is
/// one special token), else the family that the model's name contains, or null if neither gives a family.
[[nodiscard]] const TemplateFamily* guess_template_family(const std::function<bool(std::string_view)>& has_token,
                                                          std::string_view model_name);

}  // namespace slipstream
