// Fuzz target: any bytes as the source of a chat template, rendered with a conversation that holds a little of
// everything. Errors of ours are the expected outcome; time, memory and stack are bounded by small limits.
#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/text/chat/chat_template.h"

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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace slipstream;
    static const TemplateInputs kInputs = make_inputs();
    TemplateLimits limits;
    limits.max_steps = 100'000;
    limits.max_output_bytes = 1 << 18;
    limits.max_text_bytes = 1 << 18;
    limits.max_allocated_bytes = 1 << 24;
    try {
        const ChatTemplate parsed = ChatTemplate::parse(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
        static_cast<void>(parsed.render(kInputs, limits));
    } catch (const TemplateError&) {
        return 0;
    }
    return 0;
}
