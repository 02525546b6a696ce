#include "tools/engine/prompt_template.h"

#include "tools/terminal/signals.h"

namespace slipstream::tools {

PromptText PromptTemplate::render(std::span<const Message> messages) const {
    try {
        return slipstream::PromptTemplate::render(messages, &cancel_flag());
    } catch (const TemplateError&) {
        throw_if_interrupted();
        throw;
    }
}

}  // namespace slipstream::tools
