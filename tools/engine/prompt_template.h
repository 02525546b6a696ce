// The prompt templates of runtime/text/chat for programs that a signal may end.
#pragma once

#include <span>

#include "runtime/text/chat/prompt_template.h"

namespace slipstream::tools {

using slipstream::Message;
using slipstream::TemplateArguments;

class PromptTemplate : public slipstream::PromptTemplate {
public:
    using slipstream::PromptTemplate::PromptTemplate;
    /// As there; throws Interrupted after a signal.
    [[nodiscard]] PromptText render(std::span<const Message> messages) const;
};

}  // namespace slipstream::tools
