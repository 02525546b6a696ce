// The chat template of a model: Jinja, run as transformers runs it (ImmutableSandboxedEnvironment with trim_blocks,
// lstrip_blocks and loop controls; tojson, raise_exception, strftime_now, namespace and {% generation %} as in its
// utils/chat_template_utils.py, version 5), so that the model reads, byte for byte, what it was trained to read. An
// error in a template is a TemplateError with the line; the resources of a rendering are bounded (TemplateLimits).
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

/// Messages, tools and arguments: the values that JSON can express (made by jinja::Value::dict, list, text, ..., or
/// parse_template_json()).
using TemplateValue = jinja::Value;

/// Returns the message {"role": role, "content": content}.
[[nodiscard]] TemplateValue chat_message(std::string_view role, std::string_view content);

/// Returns the value that the JSON `text` describes. Throws TemplateError, which calls the text `what`, if it is not
/// JSON.
[[nodiscard]] TemplateValue parse_template_json(std::string_view text, std::string_view what);

/// Parses the K=V of one `--template-arg`. Returns K and the value of V: V read as JSON, or V as a text if it is not
/// JSON. Throws RequestError if there is no "=" or K is empty.
[[nodiscard]] std::pair<std::string, TemplateValue> parse_template_argument(std::string_view text);

struct TemplateInputs {
    /// A list of dicts with "role", "content" (a text, or a list of parts) and other keys that the template may read:
    /// tool_calls, tool_call_id, name, reasoning_content, ...
    TemplateValue messages;
    TemplateValue tools = TemplateValue::none();      // a list of JSON schemas, or none
    TemplateValue documents = TemplateValue::none();  // a list of dicts, or none
    bool add_generation_prompt = true;
    std::optional<std::string> bos_token, eos_token;  // spellings; nullopt: undefined in the template
    /// Further variables. They override the variables above.
    std::vector<std::pair<std::string, TemplateValue>> arguments;
    /// The local time that strftime_now() returns. Weekday and day of the year must be filled in, as localtime_r()
    /// does.
    std::tm now{};
};

class ChatTemplate {
public:
    /// Parses `source`; `name` names the template in messages. Throws TemplateError if the source is not Jinja or has
    /// more than kMaxTemplateBytes.
    [[nodiscard]] static ChatTemplate parse(std::string source, std::string name);
    /// Returns the prompt, with the bytes marked that were made of texts that were said (Value::said()). Throws
    /// TemplateError if the template fails, refuses the conversation (raise_exception) or exceeds `limits`.
    [[nodiscard]] MarkedText render(const TemplateInputs& inputs, const TemplateLimits& limits = {}) const;

    [[nodiscard]] const std::string& name() const;
    [[nodiscard]] const std::string& source() const;
    /// Returns whether some expression of the template reads `variable` ("tools", "enable_thinking").
    [[nodiscard]] bool reads(std::string_view variable) const;
    /// Returns the variables that the template reads, sorted by name, without those that Jinja or transformers define.
    [[nodiscard]] std::vector<std::string> variables() const;

private:
    struct Parsed;
    explicit ChatTemplate(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}

    std::shared_ptr<const Parsed> parsed_;
};

}  // namespace slipstream
