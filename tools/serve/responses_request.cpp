// The fields of /v1/responses (OpenAI), as the conversation of chat completions:
//
// - The server keeps no answers: previous_response_id, conversation and references to items are refused, and `store` is
//   ignored.
// - `instructions` are the first message of the system; messages of developers follow it.
// - An answer of the assistant is several items: reasoning, messages, function calls. Those that follow each other
//   become one message. Its texts are joined by a newline.
// - Tools that are no functions (web_search, namespaces of Codex, ...) are left out: the client runs, or asks OpenAI to
//   run, them beside its functions, and goes on without their calls.
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "tools/serve/api_error.h"
#include "tools/serve/dialect_requests.h"

namespace slipstream::tools {

namespace {

using jinja::Dict;
using jinja::Kind;

constexpr std::array<std::string_view, 16> kFields{"input",
                                                   "instructions",
                                                   "tools",
                                                   "tool_choice",
                                                   "parallel_tool_calls",
                                                   "max_output_tokens",
                                                   "reasoning",
                                                   "text",
                                                   "include",
                                                   "prompt",
                                                   "previous_response_id",
                                                   "conversation",
                                                   "background",
                                                   "top_logprobs",
                                                   "context_management",
                                                   "chat_template_kwargs"};

std::string joined(std::string text, const std::string& more) {
    if (!text.empty() && !more.empty()) text += '\n';
    text += more;
    return text;  // a returned parameter is moved; a returned expression would be copied
}

// Returns the parts of the field `name`, the content of a message or the output of a function: a text or a list of
// texts.
std::vector<TemplateValue> parts_of(const RequestFields& fields, std::string_view name) {
    const TemplateValue* content = fields.find(name);
    if (content == nullptr) fields.refuse(name, "a text or a list of parts is expected");
    if (content->is_text()) return {text_part(std::string(content->view()))};
    if (!content->is(Kind::List)) fields.refuse(name, "a text or a list of parts is expected");
    std::vector<TemplateValue> parts;
    for (const TemplateValue& value : content->items()) {
        const RequestFields part = fields_of(value, fmt::format("{}[{}]", fields.full_name(name), parts.size()));
        const std::string type = part.required_text("type");
        if (type == "input_text" || type == "output_text" || type == "text")
            parts.push_back(text_part(part.required_text("text")));
        else if (type == "refusal")
            parts.push_back(text_part(part.required_text("refusal")));
        else
            refuse_type(part, type, "texts are");
    }
    return parts;
}

// Returns the texts in the list `name` of a reasoning item, joined by newlines; empty if there are none.
std::string thought_of(const RequestFields& item, std::string_view name) {
    std::string thought;
    std::size_t n = 0;
    if (const std::vector<TemplateValue>* parts = item.list(name))
        for (const TemplateValue& part : *parts)
            thought = joined(std::move(thought),
                             fields_of(part, fmt::format("{}[{}]", item.full_name(name), n++)).required_text("text"));
    return thought;
}

class ItemsReader {
public:
    void add_message(std::string_view role, std::vector<TemplateValue> parts, Dict more = {}) {
        more.set("role", TemplateValue(role));
        more.set("content", TemplateValue::list(std::move(parts)));
        messages_.push_back(TemplateValue::dict(std::move(more)));
    }

    void add_item(const RequestFields& item) {
        const std::string type = item.text("type").value_or("message");
        if (type == "reasoning") {
            std::string thought = thought_of(item, "content");
            if (thought.empty()) thought = thought_of(item, "summary");
            answer().thought = joined(std::move(answer().thought), thought);
        } else if (type == "function_call") {
            answer().calls.push_back(call_of(item));
        } else if (type == "function_call_output") {
            complete_answer();
            Dict more;
            more.set("tool_call_id", TemplateValue(item.required_text("call_id")));
            add_message("tool", parts_of(item, "output"), std::move(more));
        } else if (type == "message") {
            add_message_item(item);
        } else {
            refuse_type(item, type, "\"message\", \"reasoning\", \"function_call\" and \"function_call_output\" are");
        }
    }

    [[nodiscard]] std::vector<TemplateValue> take() {
        complete_answer();
        return std::move(messages_);
    }

private:
    struct Answer {
        std::string thought;
        std::vector<TemplateValue> parts;
        std::vector<TemplateValue> calls;
    };

    Answer& answer() {
        if (!answer_) answer_.emplace();
        return *answer_;
    }

    void add_message_item(const RequestFields& item) {
        const std::string role = item.required_text("role");
        if (role == "assistant") {
            for (TemplateValue& part : parts_of(item, "content")) answer().parts.push_back(std::move(part));
            return;
        }
        if (role != "user" && role != "system" && role != "developer")
            item.refuse("role", "\"user\", \"assistant\", \"system\" or \"developer\" is expected");
        complete_answer();
        add_message(role, parts_of(item, "content"));
    }

    static TemplateValue call_of(const RequestFields& item) {
        Dict function;
        function.set("name", TemplateValue(item.required_text("name")));
        function.set("arguments", TemplateValue(item.required_text("arguments")));
        Dict call = function_object(std::move(function));
        call.set("id", TemplateValue(item.required_text("call_id")));
        return TemplateValue::dict(std::move(call));
    }

    void complete_answer() {
        if (!answer_) return;
        Dict more;
        if (!answer_->thought.empty()) more.set("reasoning_content", TemplateValue(answer_->thought));
        if (!answer_->calls.empty()) more.set("tool_calls", TemplateValue::list(std::move(answer_->calls)));
        add_message("assistant", std::move(answer_->parts), std::move(more));
        answer_.reset();
    }

    std::vector<TemplateValue> messages_;
    std::optional<Answer> answer_;  // the assistant's answer whose items are being read
};

std::vector<TemplateValue> messages_of(const RequestFields& fields) {
    ItemsReader reader;
    if (const auto instructions = fields.text("instructions"); instructions && !instructions->empty())
        reader.add_message("system", {text_part(*instructions)});
    const TemplateValue* input = fields.find("input");
    if (input != nullptr && input->is_text()) {
        reader.add_message("user", {text_part(std::string(input->view()))});
        return reader.take();
    }
    if (input == nullptr || !input->is(Kind::List) || input->items().empty())
        fields.refuse("input", "a text, or a list of at least one item, is expected");
    std::size_t n = 0;
    for (const TemplateValue& item : input->items()) reader.add_item(fields_of(item, fmt::format("input[{}]", n++)));
    return reader.take();
}

// Returns what -v names for a tool that is left out: its type, unless that has other characters than a word or more
// than 64, since no text of a request gets into the log.
std::string left_out_name(std::string_view type) {
    const bool is_word = type.size() <= 64 && std::ranges::all_of(type, [](char c) {
                             return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
                         });
    return is_word ? fmt::format("tools (type {})", type) : std::string("tools (another type)");
}

TemplateValue tools_of(const RequestFields& fields, const RequestContext& context) {
    const std::vector<TemplateValue>* tools = fields.list("tools");
    if (tools == nullptr) return TemplateValue::none();
    std::vector<TemplateValue> made;
    std::size_t n = 0;
    for (const TemplateValue& value : *tools) {
        const RequestFields tool = fields_of(value, fmt::format("tools[{}]", n++));
        if (const std::string type = tool.required_text("type"); type != "function") {
            if (context.on_ignored) context.on_ignored(left_out_name(type));
            continue;
        }
        if (tool.boolean("strict").value_or(false))
            throw ApiError::unsupported(
                tool.full_name("strict"),
                fmt::format("{}: arguments cannot be forced into a schema; set it to false", tool.full_name("strict")));
        Dict function;
        function.set("name", TemplateValue(tool.required_text("name")));
        if (const auto description = tool.text("description")) function.set("description", TemplateValue(*description));
        if (const TemplateValue* schema = tool.object("parameters")) function.set("parameters", *schema);
        made.push_back(TemplateValue::dict(function_object(std::move(function))));
    }
    return TemplateValue::list(std::move(made));
}

TemplateValue choice_of(const RequestFields& fields) {
    const TemplateValue* choice = fields.find("tool_choice");
    if (choice == nullptr || !choice->is(Kind::Dict)) return choice == nullptr ? TemplateValue::none() : *choice;
    const RequestFields chosen = fields_of(*choice, "tool_choice");
    if (const std::string type = chosen.required_text("type"); type != "function")
        refuse_type(chosen, type, "\"function\"");
    return choice_of_tool(chosen.required_text("name"));
}

void check_unserved_fields(const RequestFields& fields) {
    for (const std::string_view name :
         {"previous_response_id", "conversation", "prompt", "background", "context_management"})
        if (const TemplateValue* value = fields.find(name); value != nullptr && jinja::is_true(*value))
            throw ApiError::unsupported(
                std::string(name),
                fmt::format("{} is not served: the server keeps nothing; send the whole conversation as input", name));
    if (const TemplateValue* value = fields.object("text")) {
        const RequestFields text = fields_of(*value, "text");
        const TemplateValue* format = text.object("format");
        if (format != nullptr && fields_of(*format, "text.format").text("type") != "text")
            throw ApiError::unsupported("text.format",
                                        "text.format: structured output is not served; only type \"text\" is");
    }
    if (fields.integer("top_logprobs", {0, kMostLogprobs}).value_or(0) > 0)
        throw ApiError::unsupported("top_logprobs",
                                    "top_logprobs is not served here; /v1/chat/completions has log probabilities");
    if (const std::vector<TemplateValue>* include = fields.list("include"))
        for (const TemplateValue& each : *include)
            if (each.is_text() && each.view() == "message.output_text.logprobs")
                throw ApiError::unsupported(
                    "include", "include: log probabilities are not served here; /v1/chat/completions has them");
}

void parse_responses(const RequestFields& fields, const RequestContext& context, TextRequest& request) {
    check_unserved_fields(fields);
    RequestedConversation conversation{.messages = TemplateValue::list(messages_of(fields)),
                                       .tools = tools_of(fields, context),
                                       .tool_choice = choice_of(fields)};
    if (const TemplateValue* reasoning = fields.object("reasoning"))
        if (const auto effort = fields_of(*reasoning, "reasoning").text("effort"))
            conversation.reasoning_effort = TemplateValue(*effort);
    if (const TemplateValue* arguments = fields.object("chat_template_kwargs"))
        conversation.template_arguments = *arguments;
    if (const auto most = fields.integer("max_output_tokens", kTokenCount)) request.text.max_tokens = *most;
    request.one_call = !fields.boolean("parallel_tool_calls").value_or(true);
    request.prompt = std::move(conversation);
}

}  // namespace

const DialectParser& responses_parser() {
    static constexpr DialectParser kParser{kFields, parse_responses};
    return kParser;
}

}  // namespace slipstream::tools
