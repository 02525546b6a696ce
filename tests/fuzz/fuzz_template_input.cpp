// Fuzz target: any bytes as the JSON of messages and tools ({"messages": ..., "tools": ..., the rest: arguments}), or
// as a --template-arg, rendered with templates that look into everything, print it, and take it apart.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "runtime/text/chat/chat_template.h"
#include "runtime/text/chat/choose_template.h"

namespace {

constexpr const char* kEverything = R"jinja({{ messages }}{{ tools|tojson(indent=2) }}{{ bos_token }}
{%- macro show(value, depth=0) %}
{%- if value is mapping %}{% for k, v in value|dictsort %}{{ k }}:{{ show(v, depth + 1) }}{% endfor %}
{%- elif value is string %}{{ value|title ~ value[::-1] ~ value.split()|unique|join(',') ~ '{}|{{}}'.format(value) ~ value|upper ~ value.strip('a ') ~ value|replace('a', value) }}
{%- elif value is iterable %}{% for v in value %}{{ show(v, depth + 1) }}{{ loop.last }}{{ loop.length }}{% endfor %}
{%- elif value is number %}{{ value|string }}{{ value|tojson }}{% if value is not integer or value == value|int %}{{ value // 3 }}{{ value % 7 }}{% endif %}
{%- else %}{{ value }}{% endif %}
{%- endmacro %}
{%- for message in messages %}{{ message.role|upper }}{{ message.content|string|trim|indent }}{{ message|length }}{{ message|tojson(sort_keys=true) }}
{%- for call in message.tool_calls or [] %}{{ call.function.name }}{{ call['function']['arguments']|tojson }}{% endfor %}
{%- endfor %}{{ show(messages) }}{{ messages|map(attribute='content')|list|sort }}{{ messages|unique(attribute='role')|list }}{{ messages|selectattr('content')|list }})jinja";

constexpr std::array<std::string_view, 4> kFamilies = {"chatml", "gemma", "llama-2", "vicuna"};

std::vector<slipstream::ChatTemplate> parse_families() {
    std::vector<slipstream::ChatTemplate> templates;
    for (const std::string_view family : kFamilies)
        templates.push_back(
            slipstream::ChatTemplate::parse(std::string(slipstream::find_template_family(family)->source), "family"));
    return templates;
}

slipstream::TemplateInputs read_inputs(std::string_view text) {
    slipstream::TemplateInputs inputs;
    const slipstream::TemplateValue json = slipstream::parse_template_json(text, "fuzz");
    inputs.messages = json;
    if (!json.is(slipstream::jinja::Kind::Dict)) return inputs;
    for (const auto& [key, value] : json.dict().items()) {
        if (key.view() == "messages") {
            inputs.messages = value;
        } else if (key.view() == "tools") {
            inputs.tools = value;
        } else {
            inputs.arguments.emplace_back(key.view(), value);
        }
    }
    return inputs;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace slipstream;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    static const ChatTemplate kTemplate = ChatTemplate::parse(kEverything, "everything");
    static const std::vector<ChatTemplate> kParsedFamilies = parse_families();
    const TemplateLimits limits{.max_steps = 200'000, .max_text_bytes = 1 << 20, .max_live_bytes = 1 << 25};
    try {
        static_cast<void>(parse_template_argument(text));
    } catch (const RequestError&) {
        // The same bytes may still be JSON.
    }
    TemplateInputs inputs;
    try {
        inputs = read_inputs(text);
        static_cast<void>(kTemplate.render(inputs, limits));
    } catch (const TemplateError&) {
        // A family asks for less.
    }
    for (const ChatTemplate& family : kParsedFamilies) {
        try {
            static_cast<void>(family.render(inputs, limits));
        } catch (const TemplateError&) {
            continue;
        }
    }
    return 0;
}
