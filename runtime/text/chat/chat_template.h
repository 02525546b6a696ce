// The chat template of a model: Jinja, run as transformers runs it (ImmutableSandboxedEnvironment with trim_blocks,
// lstrip_blocks and loop controls; tojson, raise_exception, strftime_now, namespace and {% generation %} as in its
// utils/chat_template_utils.py, version 5), so that the model reads, byte for byte, what it was trained to read. What a
// template does wrong is a TemplateError with its line; what it may take is bounded (TemplateLimits).
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream {

/// Messages, tools and arguments: what JSON can say (jinja::Value::dict, list, text, ...; or parse_template_json()).
using TemplateValue = jinja::Value;

/// {"role": role, "content": content}.
[[nodiscard]] TemplateValue chat_message(std::string_view role, std::string_view content);

/// Reads JSON; `what` names it in the TemplateError of text that is none.
[[nodiscard]] TemplateValue parse_template_json(std::string_view text, std::string_view what);

/// One `--template-arg K=V`: V as JSON if it is JSON, else as text. Throws RequestError where there is no "=" or no K.
[[nodiscard]] std::pair<std::string, TemplateValue> parse_template_argument(std::string_view text);

struct TemplateInputs {
    /// A list of dicts with "role", "content" (a text, or a list of parts) and whatever else the template knows:
    /// tool_calls, tool_call_id, name, reasoning_content, ...
    TemplateValue messages;
    TemplateValue tools = TemplateValue::none();      // a list of JSON schemas, or none
    TemplateValue documents = TemplateValue::none();  // a list of dicts, or none
    bool add_generation_prompt = true;
    std::optional<std::string> bos_token, eos_token;  // undefined in the template where the tokenizer has none
    /// Further variables; they win over those above.
    std::vector<std::pair<std::string, TemplateValue>> arguments;
    /// The local time that strftime_now() tells; its weekday and day of the year must be filled in (localtime_r does).
    std::tm now{};
};

class ChatTemplate {
public:
    /// `name` stands in messages. Throws TemplateError.
    [[nodiscard]] static ChatTemplate parse(std::string source, std::string name);
    /// The prompt, and which parts of it come of texts that were said (Value::said()). Throws TemplateError; what the
    /// template itself refuses (raise_exception) is one as well.
    [[nodiscard]] MarkedText render(const TemplateInputs& inputs, const TemplateLimits& limits = {}) const;

    [[nodiscard]] const std::string& name() const;
    [[nodiscard]] const std::string& source() const;
    /// Whether the template asks for this variable anywhere ("tools", "enable_thinking").
    [[nodiscard]] bool reads(std::string_view variable) const;
    /// All that it asks for and Jinja or transformers do not define, sorted.
    [[nodiscard]] std::vector<std::string> variables() const;

private:
    struct Parsed;
    explicit ChatTemplate(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}

    std::shared_ptr<const Parsed> parsed_;
};

}  // namespace slipstream
