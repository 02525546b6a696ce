// The tools of a request: checked, marked as said text, and by name for readers of answers.
#pragma once

#include "runtime/text/answer/offered_tool.h"
#include "runtime/text/chat/chat_template.h"

namespace slipstream {

struct RequestedTools {
    TemplateValue values;  // for the template: a list as in the request, with all texts marked as said
    OfferedTools offered;
};

/// Returns the tools of `tools`, a list of {"type": "function", "function": {"name", "description", "parameters"}}.
/// Throws FieldError for anything else, for two tools of one name, and for tools with "strict": true.
[[nodiscard]] RequestedTools read_tools(const TemplateValue& tools);

/// Returns whether `name` may be the name of a tool: letters, digits and "_-.:/", at most 128 bytes. Forms of calls
/// cannot express others.
[[nodiscard]] bool is_tool_name(std::string_view name);

}  // namespace slipstream
