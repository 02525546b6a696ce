#include "runtime/text/chat/choose_template.h"

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"

namespace slipstream {

namespace {

constexpr std::string_view kToolTemplate = "tool_use";

std::string names_of(const std::vector<NamedChatTemplate>& templates) {
    std::string names;
    for (const NamedChatTemplate& known : templates) {
        if (!names.empty()) names += ", ";
        names += printable(known.name);
    }
    return names;
}

}  // namespace

const std::string* find_chat_template(const std::vector<NamedChatTemplate>& templates, std::string_view name) {
    const auto found =
        std::find_if(templates.begin(), templates.end(), [name](const auto& known) { return known.name == name; });
    return found == templates.end() ? nullptr : &found->source;
}

std::optional<ChatTemplate> chat_template_of(const std::vector<NamedChatTemplate>& templates, ToolUse tools,
                                             std::string_view wanted) {
    if (templates.empty()) return std::nullopt;
    std::string_view name = wanted.empty() ? kDefaultChatTemplate : wanted;
    if (wanted.empty() && tools == ToolUse::Tools && find_chat_template(templates, kToolTemplate) != nullptr)
        name = kToolTemplate;
    const std::string* text = find_chat_template(templates, name);
    // One that is alone is meant, whatever it is called.
    if (text == nullptr && wanted.empty() && templates.size() == 1) text = &templates.front().source;
    if (text == nullptr)
        throw RequestError(fmt::format("the model has no chat template called \"{}\"; it has: {}", printable(name),
                                       names_of(templates)));
    const bool is_plain = name == kDefaultChatTemplate;
    return ChatTemplate::parse(*text, is_plain ? std::string("the model's chat template")
                                               : fmt::format("the model's chat template \"{}\"", printable(name)));
}

}  // namespace slipstream
