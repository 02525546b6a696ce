// The arguments of calls in the messages of a request, in a form that the chat template writes without an error.
//
// Most templates write an object by tojson and a text as it is. Some concatenate texts and fail on an object (DeepSeek
// R1); some write the members of an object and fail on a text (Qwen3-Coder). The history of a conversation stays in all
// its later requests, so such an error would end the conversation.
#pragma once

#include <cstddef>
#include <optional>

#include "runtime/text/chat/prompt_template.h"
#include "runtime/text/request/request_json.h"

namespace slipstream {

class CallArguments {
public:
    /// `form` must outlive this object. It may be null if no call is converted.
    explicit CallArguments(const PromptTemplate* form) : form_(form) {}

    /// Returns `given` (null: no arguments), a JSON text or a value, as said text or as a value with said texts: an
    /// object if it describes one, else a text; the other of the two if the template fails on the first. A text then
    /// is the member "arguments" of an object. JSON stays text that is nested deeper than kMaxRequestDepth or has,
    /// together with that of earlier calls, more than kMaxRequestValues.
    [[nodiscard]] TemplateValue for_template(const TemplateValue* given);

private:
    struct Forms {
        bool object = false, text = false;
    };

    [[nodiscard]] TemplateValue parsed(const TemplateValue& arguments);
    [[nodiscard]] const Forms& forms();
    [[nodiscard]] bool writes(TemplateValue arguments) const;

    const PromptTemplate* form_;
    std::optional<Forms> forms_;  // which forms the template takes
    std::size_t n_values_left_ = kMaxRequestValues;
};

}  // namespace slipstream
