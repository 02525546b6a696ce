// The fields of /v1/messages (Anthropic), as the conversation of chat completions:
//
// - `system`, a text or text blocks, is the first message. The line x-anthropic-billing-header at the beginning of a
//   block is left out: Claude Code writes another one into each request, so no prompt would have a beginning in common
//   with the one before.
// - Blocks of a message of the user: results of tools (tool_result) become messages of tools, before the user's text,
//   since templates require results directly after the calls.
// - Blocks of an answer: text, thinking, tool_use become its content, thought, calls. A thought that is encrypted
//   (redacted_thinking) is another model's and is left out.
// - A tool with `defer_loading` is left out until a result names it (tool_reference).
// - `thinking` and `output_config.effort` go to templates that read them. A budget of a thought is no rule for a model
//   that was not trained with it, and is ignored.
#include <array>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "tools/serve/api_error.h"
#include "tools/serve/dialect_requests.h"

namespace slipstream::tools {

namespace {

using jinja::Dict;
using jinja::Kind;

constexpr std::array<std::string_view, 12> kFields{"messages",
                                                   "system",
                                                   "tools",
                                                   "tool_choice",
                                                   "thinking",
                                                   "stop_sequences",
                                                   "output_config",
                                                   "mcp_servers",
                                                   "container",
                                                   "output_format",
                                                   "chat_template_kwargs",
                                                   "context_management"};
constexpr std::string_view kBillingLine = "x-anthropic-billing-header:";

std::string without_billing_line(std::string text) {
    if (!text.starts_with(kBillingLine)) return text;
    const std::size_t end = text.find('\n');
    return end == std::string::npos ? std::string() : text.substr(end + 1);
}

/// Calls add_text(text) for each text block and add_block(type, fields) for each other block of the field `name`, in
/// their order; a field that is a text counts as one text block. Throws ApiError if the field is neither.
template <typename AddText, typename AddBlock>
void for_blocks(const RequestFields& fields, std::string_view name, AddText add_text, AddBlock add_block) {
    const TemplateValue* content = fields.find(name);
    if (content == nullptr) fields.refuse(name, "a text or a list of blocks is expected");
    if (content->is_text()) return add_text(std::string(content->view()));
    if (!content->is(Kind::List)) fields.refuse(name, "a text or a list of blocks is expected");
    std::size_t n = 0;
    for (const TemplateValue& value : content->items()) {
        const RequestFields block = fields_of(value, fmt::format("{}[{}]", fields.full_name(name), n++));
        const std::string type = block.required_text("type");
        if (type == "text")
            add_text(block.required_text("text"));
        else
            add_block(type, block);
    }
}

class MessagesReader {
public:
    void add_system(const RequestFields& fields) {
        if (!fields.has("system")) return;
        std::vector<TemplateValue> parts;
        for_blocks(
            fields, "system",
            [&](std::string text) {
                text = without_billing_line(std::move(text));
                if (!text.empty()) parts.push_back(text_part(text));
            },
            [](std::string_view type, const RequestFields& block) { refuse_type(block, type, "\"text\""); });
        if (!parts.empty()) add("system", std::move(parts));
    }

    void add_message(const RequestFields& message) {
        const std::string role = message.required_text("role");
        if (role == "user") return add_user(message);
        if (role == "assistant") return add_assistant(message);
        if (role != "system") message.refuse("role", "\"user\", \"assistant\" or \"system\" is expected");
        std::vector<TemplateValue> parts;
        for_blocks(
            message, "content", [&](const std::string& text) { parts.push_back(text_part(text)); },
            [](std::string_view type, const RequestFields& block) { refuse_type(block, type, "\"text\""); });
        add(role, std::move(parts));
    }

    [[nodiscard]] std::vector<TemplateValue> take() { return std::move(messages_); }
    /// Returns whether a tool result that was added has named the tool (tool_reference).
    [[nodiscard]] bool is_referenced(const std::string& tool) const { return referenced_.contains(tool); }

private:
    void add(std::string_view role, std::vector<TemplateValue> parts, Dict more = {}) {
        more.set("role", TemplateValue(role));
        more.set("content", TemplateValue::list(std::move(parts)));
        messages_.push_back(TemplateValue::dict(std::move(more)));
    }

    void add_user(const RequestFields& message) {
        std::vector<TemplateValue> parts;
        bool has_result = false;
        for_blocks(
            message, "content", [&](const std::string& text) { parts.push_back(text_part(text)); },
            [&](std::string_view type, const RequestFields& block) {
                if (type != "tool_result") refuse_type(block, type, "\"text\" and \"tool_result\"");
                add_result(block);
                has_result = true;
            });
        if (!parts.empty() || !has_result) add("user", std::move(parts));
    }

    void add_result(const RequestFields& result) {
        std::vector<TemplateValue> parts;
        if (result.has("content"))
            for_blocks(
                result, "content", [&](const std::string& text) { parts.push_back(text_part(text)); },
                [&](std::string_view type, const RequestFields& block) {
                    if (type != "tool_reference") refuse_type(block, type, "\"text\" and \"tool_reference\"");
                    const std::string name = block.required_text("tool_name");
                    parts.push_back(text_part(name));
                    referenced_.insert(name);
                });
        Dict more;
        more.set("tool_call_id", TemplateValue(result.required_text("tool_use_id")));
        add("tool", std::move(parts), std::move(more));
    }

    void add_assistant(const RequestFields& message) {
        std::vector<TemplateValue> parts;
        std::vector<TemplateValue> calls;
        std::string thought;
        for_blocks(
            message, "content", [&](const std::string& text) { parts.push_back(text_part(text)); },
            [&](std::string_view type, const RequestFields& block) {
                if (type == "thinking") {
                    if (!thought.empty()) thought += '\n';
                    thought += block.required_text("thinking");
                } else if (type == "tool_use") {
                    calls.push_back(call_of(block));
                } else if (type != "redacted_thinking") {
                    refuse_type(block, type, "\"text\", \"thinking\" and \"tool_use\"");
                }
            });
        Dict more;
        if (!thought.empty()) more.set("reasoning_content", TemplateValue(thought));
        if (!calls.empty()) more.set("tool_calls", TemplateValue::list(std::move(calls)));
        add("assistant", std::move(parts), std::move(more));
    }

    static TemplateValue call_of(const RequestFields& block) {
        Dict function;
        function.set("name", TemplateValue(block.required_text("name")));
        if (const TemplateValue* input = block.find("input")) function.set("arguments", *input);
        Dict call = function_object(std::move(function));
        call.set("id", TemplateValue(block.required_text("id")));
        return TemplateValue::dict(std::move(call));
    }

    std::vector<TemplateValue> messages_;
    std::set<std::string> referenced_;
};

TemplateValue tools_of(const RequestFields& fields, const MessagesReader& reader) {
    const std::vector<TemplateValue>* tools = fields.list("tools");
    if (tools == nullptr) return TemplateValue::none();
    std::vector<TemplateValue> made;
    std::size_t n = 0;
    for (const TemplateValue& value : *tools) {
        const RequestFields tool = fields_of(value, fmt::format("tools[{}]", n++));
        const std::string type = tool.text("type").value_or("custom");
        if (type != "custom") refuse_type(tool, type, "tools of the client, \"custom\", are");
        if (tool.boolean("strict").value_or(false))
            throw ApiError::unsupported(
                tool.full_name("strict"),
                fmt::format("{}: arguments cannot be forced into a schema; leave it out", tool.full_name("strict")));
        Dict function;
        const std::string name = tool.required_text("name");
        if (tool.boolean("defer_loading").value_or(false) && !reader.is_referenced(name)) continue;
        function.set("name", TemplateValue(name));
        if (const auto description = tool.text("description")) function.set("description", TemplateValue(*description));
        if (const TemplateValue* schema = tool.object("input_schema")) function.set("parameters", *schema);
        made.push_back(TemplateValue::dict(function_object(std::move(function))));
    }
    return TemplateValue::list(std::move(made));
}

void parse_choice(const RequestFields& fields, RequestedConversation& conversation, TextRequest& request) {
    const TemplateValue* value = fields.object("tool_choice");
    if (value == nullptr) return;
    const RequestFields choice = fields_of(*value, "tool_choice");
    const std::string type = choice.required_text("type");
    if (type == "tool")
        conversation.tool_choice = choice_of_tool(choice.required_text("name"));
    else if (type == "any")
        conversation.tool_choice = TemplateValue("required");
    else if (type == "auto" || type == "none")
        conversation.tool_choice = TemplateValue(type);
    else
        choice.refuse("type", "\"auto\", \"any\", \"tool\" or \"none\" is expected");
    request.one_call = choice.boolean("disable_parallel_tool_use").value_or(false);
}

void parse_thinking(const RequestFields& fields, RequestedConversation& conversation) {
    if (const TemplateValue* value = fields.object("thinking")) {
        const RequestFields thinking = fields_of(*value, "thinking");
        const std::string type = thinking.required_text("type");
        if (type != "enabled" && type != "disabled" && type != "adaptive")
            thinking.refuse("type", "\"enabled\", \"disabled\" or \"adaptive\" is expected");
        static_cast<void>(thinking.integer("budget_tokens", kTokenCount));
        if (type != "adaptive")
            conversation.thinking = TemplateValue(type == "enabled");  // adaptive: the model decides
    }
    if (const TemplateValue* value = fields.object("output_config")) {
        const RequestFields config = fields_of(*value, "output_config");
        if (config.has("format"))
            throw ApiError::unsupported("output_config.format",
                                        "output_config.format: structured output is not served");
        if (const auto effort = config.text("effort")) conversation.reasoning_effort = TemplateValue(*effort);
    }
}

// Throws ApiError if a field is set that would change the prompt and is not served. In context_management only edits
// clear_thinking_... are accepted, which Claude Code sends, and they are ignored: the template decides which thoughts
// of earlier answers a prompt has.
void check_unserved_fields(const RequestFields& fields, const RequestContext& context) {
    for (const std::string_view name : {"mcp_servers", "container", "output_format"})
        if (const TemplateValue* value = fields.find(name); value != nullptr && jinja::is_true(*value))
            throw ApiError::unsupported(std::string(name), fmt::format("{} is not served here", name));
    const TemplateValue* management = fields.object("context_management");
    if (management == nullptr) return;
    const RequestFields managed = fields_of(*management, "context_management");
    std::size_t n = 0;
    if (const std::vector<TemplateValue>* edits = managed.list("edits"))
        for (const TemplateValue& value : *edits) {
            const RequestFields edit = fields_of(value, fmt::format("context_management.edits[{}]", n++));
            if (const std::string type = edit.required_text("type"); !type.starts_with("clear_thinking_"))
                refuse_type(edit, type, "\"clear_thinking\"");
        }
    if (context.on_ignored) context.on_ignored("context_management");
}

void parse_messages(const RequestFields& fields, const RequestContext& context, TextRequest& request) {
    check_unserved_fields(fields, context);
    const std::vector<TemplateValue>* messages = fields.list("messages");
    if (messages == nullptr || messages->empty())
        fields.refuse("messages", "a list of at least one message is expected");
    MessagesReader reader;
    reader.add_system(fields);
    std::size_t n = 0;
    for (const TemplateValue& message : *messages)
        reader.add_message(fields_of(message, fmt::format("messages[{}]", n++)));
    RequestedConversation conversation{.messages = TemplateValue::list(reader.take()),
                                       .tools = tools_of(fields, reader)};
    parse_choice(fields, conversation, request);
    parse_thinking(fields, conversation);
    if (const TemplateValue* arguments = fields.object("chat_template_kwargs"))
        conversation.template_arguments = *arguments;
    if (fields.has("stop_sequences")) request.text.stops = parse_stops(fields, "stop_sequences");
    request.prompt = std::move(conversation);
}

}  // namespace

const DialectParser& messages_parser() {
    static constexpr DialectParser kParser{kFields, parse_messages};
    return kParser;
}

}  // namespace slipstream::tools
