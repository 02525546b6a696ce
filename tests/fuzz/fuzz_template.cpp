// Fuzz target: any bytes as the source of a chat template, rendered with a conversation that holds a little of
// everything. Errors of ours are the expected outcome; time, memory and stack are bounded by small limits.
#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/base/check.h"
#include "runtime/text/chat/prompt_template.h"

namespace {

constexpr const char* kMessages = R"([{"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Grüße, 你好"}, {"type": "image"}]},
    {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [{"id": "abcdefghi", "type": "function",
     "function": {"name": "f", "arguments": {"x": [1, 2.5, true, null, "<&'>"]}}}]},
    {"role": "tool", "tool_call_id": "abcdefghi", "content": "42"}, {"role": "user", "content": "  and\nnow?  "}])";
constexpr const char* kTools = R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters":
    {"type": "object", "properties": {"x": {"type": "array"}}, "required": ["x"]}}}])";

slipstream::TemplateInputs make_inputs() {
    slipstream::TemplateInputs inputs;
    inputs.messages = slipstream::parse_template_json(kMessages, "messages");
    inputs.tools = slipstream::parse_template_json(kTools, "tools");
    inputs.bos_token = "<s>";
    inputs.eos_token = "</s>";
    inputs.now.tm_mday = 1;
    return inputs;
}

slipstream::TemplateInputs said_inputs(slipstream::TemplateInputs inputs) {
    std::vector<slipstream::TemplateValue> messages;
    for (const slipstream::TemplateValue& message : inputs.messages.items())
        messages.push_back(slipstream::said_message(message));
    inputs.messages = slipstream::TemplateValue::list(std::move(messages));
    return inputs;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace slipstream;
    static const TemplateInputs kInputs = make_inputs();
    static const TemplateInputs kSaid = said_inputs(kInputs);
    const TemplateLimits limits{.max_steps = 100'000, .max_text_bytes = 1 << 18, .max_live_bytes = 1 << 24};
    try {
        const ChatTemplate parsed = ChatTemplate::parse(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
        const MarkedText plain = parsed.render(kInputs, limits);
        const MarkedText marked = parsed.render(kSaid, limits);
        // Marks change nothing but themselves, and stand in order.
        CHECK(plain.said.empty() && plain.bytes == marked.bytes, "marks change a rendering");
        std::size_t end = 0;
        for (const TextSpan& span : marked.said) {
            CHECK(span.begin < span.end && (end == 0 || span.begin > end) && span.end <= marked.bytes.size(), "a mark");
            end = span.end;
        }
    } catch (const TemplateError&) {
        return 0;
    }
    return 0;
}
