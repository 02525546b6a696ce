#include "tools/cli/messages_file.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"
#include "runtime/text/request/request_json.h"

namespace slipstream::tools {

using jinja::Kind;

bool MessagesFile::offers_tools() const {
    return conversation.tools.is(Kind::List) && !conversation.tools.items().empty();
}

MessagesFile parse_messages_file(std::string_view json, std::string_view name) {
    MessagesFile file;
    const TemplateValue value = parse_request_json(json, name);
    if (value.is(Kind::List)) {
        file.conversation.messages = value;
        return file;
    }
    if (!value.is(Kind::Dict))
        throw RequestError(fmt::format("{}: neither a list of messages nor an object with \"messages\"", name));
    RequestedConversation& asked = file.conversation;
    const std::array<std::pair<std::string_view, TemplateValue*>, 6> known{
        {{"messages", &asked.messages},
         {"tools", &asked.tools},
         {"tool_choice", &asked.tool_choice},
         {"chat_template_kwargs", &asked.template_arguments},
         {"reasoning_effort", &asked.reasoning_effort},
         {"response_format", &asked.response_format}}};
    for (const auto& [key, item] : value.dict().items()) {
        bool is_known = false;
        for (const auto& [field, place] : known) {
            if (key.view() != field) continue;
            *place = item;
            is_known = true;
        }
        if (!is_known) file.ignored += fmt::format("{}{}", file.ignored.empty() ? "" : ", ", printable(key.view()));
    }
    return file;
}

}  // namespace slipstream::tools
