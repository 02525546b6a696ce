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

    /// Returns the arguments of one call as the template takes them, with all texts marked as said. `given` is a JSON
    /// text or a value; null: no arguments. The result is an object if `given` describes one, otherwise a text. If the
    /// template fails on that kind, an object is returned as JSON text, and a text as the member "arguments" of an
    /// object. A JSON text stays a text if it is nested deeper than kMaxRequestDepth, or if it has, together with those
    /// of earlier calls, more than kMaxRequestValues values.
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
